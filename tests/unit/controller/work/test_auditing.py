"""Audits: which work the controller repeats, on which node, from which version, and which notes it writes about it."""

from __future__ import annotations

import math
import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from barnraise.controller.fleet.membership import MOST_DECLINED, Membership
from barnraise.controller.fleet.probation import PACE, Probation
from barnraise.controller.fleet.records import NodeRecords
from barnraise.controller.state import actions as act
from barnraise.controller.state import effects
from barnraise.controller.state.settings import AuditSettings
from barnraise.controller.state.state import Badge, NodeState
from barnraise.controller.versions import publishing
from barnraise.controller.versions.evaluation import Evaluation
from barnraise.controller.work import auditing
from barnraise.controller.work.auditing import LONGEST_WINDOW, MOST_CASES, TRIES, Auditing
from barnraise.core.types import MOST_UNDONE, SKETCH_BYTES, SKETCH_SIZE, Audit, NodeProfile, Train
from barnraise.ledger import notes
from barnraise.ledger.decisions import Assigned, Judged, Noted
from barnraise.trust.repeats import MOST_ANSWERS
from barnraise.trust.reputation import Reputation
from barnraise.trust.roles import WORKER
from barnraise.wire.messages import Decline

from ....state_machine.chances import FLUSH, STATELESS
from ....state_machine.engine import (
    OTHER_SKETCH,
    SKETCH,
    Engine,
    contribution,
    engine_settings,
    ev,
    on_probation,
    sketched,
)


@pytest.fixture(autouse=True)
def _all_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """But in the tests of who is drawn."""
    monkeypatch.setattr(auditing, "DRAWN", 1e9)


def audited(share: float = 1.0, **changes: Any) -> Engine:
    """Return a run of many tasks in which nodes repeat a share of the contributions."""
    usual = {"tokens": 10**6, "buffer_size": 1, "audits": AuditSettings(share, b"key")}
    return Engine(engine_settings(**usual | changes))


def asks(engine: Engine, *nodes: str) -> None:
    for node in nodes:
        if node not in engine.machine.parts[NodeRecords].present:
            engine.hello(node)
        engine.next(node)


def audits(engine: Engine, node: str) -> list[Audit]:
    """Those that the node has in hand."""
    return [task for task in engine.held.get(node, {}).values() if isinstance(task, Audit)]


def held_until(engine: Engine, node: str) -> float:
    hold = engine.machine.parts[Probation].hold(engine.state.nodes[node], engine.now)
    return 0.0 if hold is None else hold.until


def train_once(engine: Engine, node: str, **changes: Any) -> Train:
    """The node contributes, and versions are made of it."""
    asks(engine, node)
    (task,) = [task for task in engine.held[node].values() if isinstance(task, Train)]
    engine.offer(node, contribution(task, **changes))
    settle(engine)
    return task


def settle(engine: Engine) -> None:
    while jobs := [job for job in engine.jobs if isinstance(job, effects.Inspect | effects.Aggregate)]:
        engine.answer(jobs[0])


def told(engine: Engine) -> list[tuple[str, notes.Audited]]:
    """Return the audited node and the note of each audit in the journal."""
    return [(d.node, d.note) for d in engine.journal if isinstance(d, Noted) and isinstance(d.note, notes.Audited)]


def unaudited(engine: Engine) -> list[tuple[str, notes.Unaudited]]:
    """The contributions whose audits lapsed, with the reasons."""
    return [(d.node, d.note) for d in engine.journal if isinstance(d, Noted) and isinstance(d.note, notes.Unaudited)]


def test_another_node_repeats_a_task_from_its_base_version() -> None:
    engine = audited()
    done = train_once(engine, "a", steps=1)
    train_once(engine, "a")  # a node does not audit its own work, and versions advance
    asks(engine, "b")
    (task,) = audits(engine, "b")
    assert (task.train.id, task.train.base, task.base) == (done.id, done.base, 2)
    assert [(update.version, update.kind) for update in task.back] == [(1, "delta"), (2, "delta")]
    assert (task.train.batches, task.train.learning_rate) == (done.batches, done.learning_rate)
    assert (task.train.local_steps, task.train.tokens) == (1, done.tokens // done.local_steps), "what was handed in"
    engine.offer("b", sketched(task))
    ((node, note),) = told(engine)
    assert node == "a"
    assert note == notes.Audited(done.id, task.id, "b", 1.0, 0.0)
    assert task.id not in engine.state.record.findings
    assert engine.state.nodes["b"].tally.tokens == 0, "it trains nothing"


def test_a_differing_sketch_is_reported_as_such() -> None:
    engine = audited()
    train_once(engine, "a")
    asks(engine, "b")
    (task,) = audits(engine, "b")
    opposite = bytes(byte ^ 0x80 if place % 4 == 3 else byte for place, byte in enumerate(SKETCH))
    engine.offer("b", sketched(task, sketch=opposite))
    ((_, note),) = told(engine)
    assert (note.cosine, note.distance) == (-1.0, 2.0)


def test_a_single_node_gets_no_audit() -> None:
    engine = audited()
    for _ in range(3):
        train_once(engine, "a")
    assert not any(isinstance(d, Assigned) and d.kind == "audit" for d in engine.journal)


def test_a_secret_key_chooses_the_audited_share() -> None:
    chosen = []
    for key in (b"one", b"one", b"two"):
        settings = {"tokens": 10**6, "buffer_size": 1, "exchanged": 10**6}
        engine = Engine(engine_settings(**settings, audits=AuditSettings(0.25, key)))
        for _ in range(60):
            train_once(engine, "a")
        chosen.append({number for number in engine.account.tasks if number in engine.machine.parts[Auditing].cases})  # type: ignore[attr-defined]
        seeds = {case.seed for case in engine.machine.parts[Auditing].cases.values()}  # type: ignore[attr-defined]
        assert len(seeds) == len(chosen[-1])
    assert chosen[0] == chosen[1] != chosen[2]
    assert all(5 <= len(numbers) <= 25 for numbers in chosen)  # 15, give or take three standard deviations


def test_none_is_sketched_where_none_is_wanted() -> None:
    engine = audited(share=0.0)
    asks(engine, "a")
    (task,) = engine.held["a"].values()
    engine.offer("a", contribution(task))
    assert [job.seed for job in engine.jobs if isinstance(job, effects.Inspect)] == [0]


def test_a_codec_is_no_way_around_it() -> None:
    """The controller also audits a node that sends every contribution as if it were leaving."""
    engine = audited(**FLUSH)
    asks(engine, "a")
    (task,) = engine.held["a"].values()
    engine.offer("a", contribution(task, codec=1))
    assert all(job.seed for job in engine.jobs if isinstance(job, effects.Inspect))
    settle(engine)
    asks(engine, "b")
    assert audits(engine, "b")


def test_a_restarted_controller_withdraws_audits_that_it_cannot_compare() -> None:
    engine = audited()
    train_once(engine, "a")
    asks(engine, "b")
    (task,) = audits(engine, "b")
    engine.crash()
    assert task.id not in engine.state.works
    engine.hello("b")
    assert not audits(engine, "b"), "it is told to forget it"
    train_once(engine, "b")


def test_a_refused_contribution_is_not_audited() -> None:
    engine = audited()
    asks(engine, "a")
    (task,) = engine.held["a"].values()
    engine.offer("a", contribution(task))
    (job,) = [job for job in engine.jobs if isinstance(job, effects.Inspect)]
    engine.answer(job, good=False)
    asks(engine, "b")
    assert not audits(engine, "b")


def test_it_is_tried_by_others_and_then_let_be() -> None:
    engine = audited()
    train_once(engine, "a")
    for number in range(TRIES):
        asks(engine, f"b{number}")
        (task,) = audits(engine, f"b{number}")
        engine.handle(ev.Received(f"b{number}", Decline(task.id, "no")))
        engine.held[f"b{number}"].clear()
        asks(engine, f"b{number}")
        assert not audits(engine, f"b{number}"), "it has given it back"
    asks(engine, "c")
    assert not audits(engine, "c")
    assert unaudited(engine) == [("a", notes.Unaudited(1, f"{TRIES} nodes were asked"))]


def test_a_lost_auditor_is_replaced_and_its_late_result_is_ignored() -> None:
    engine = audited()
    train_once(engine, "a")
    asks(engine, "b")
    (task,) = audits(engine, "b")
    engine.handle(ev.Lost("b", "killed"))
    asks(engine, "c")
    (again,) = audits(engine, "c")
    assert again.train == task.train
    engine.offer("c", sketched(again))
    assert [note.by for _, note in told(engine)] == ["c"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"steps": 1}, "took 1 steps, but 2 are to be repeated"),
        ({"sketch": b"\xff" * SKETCH_BYTES}, "not finite"),
        ({"loss": math.nan}, "not finite"),
        ({"base": 7}, "base is version 7"),
    ],
)
def test_an_invalid_audit_is_refused_and_another_node_repeats_it(changes: dict[str, Any], words: str) -> None:
    engine = audited()
    train_once(engine, "a")
    asks(engine, "b")
    (task,) = audits(engine, "b")
    engine.offer("b", sketched(task, **changes))
    judged = [d for d in engine.journal if isinstance(d, Judged)][-1]
    assert judged.verdict == "refused"
    assert words in judged.reason
    asks(engine, "c")
    assert [again.train for again in audits(engine, "c")] == [task.train]


def test_contributions_to_unreachable_versions_are_not_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deltas back to it would be more bytes than are kept."""
    monkeypatch.setattr(publishing, "UNDONE_BYTES", 0)
    engine = audited(exchanged=60)  # deltas of 90 bytes, snapshots of 240
    for _ in range(16):
        train_once(engine, "a")
    asks(engine, "b")
    (task,) = audits(engine, "b")
    assert task.train.id > 1
    assert task.base - task.train.base == len(task.back) <= 14
    assert min(engine.machine.parts[Auditing].cases) == task.train.id  # type: ignore[attr-defined]
    assert {note.reason for _, note in unaudited(engine)} == {"its version is too far back by now"}
    assert [note.assignment for _, note in unaudited(engine)] == list(range(1, task.train.id))


def test_deltas_as_large_as_the_model_are_kept_for_as_many_versions() -> None:
    engine = audited(exchanged=20)  # the model has 80 bytes, and a delta has 90
    for _ in range(MOST_UNDONE):
        train_once(engine, "a")
    asks(engine, "b")
    (task,) = audits(engine, "b")
    assert len(task.back) == MOST_UNDONE


def test_a_node_without_the_memory_is_not_asked() -> None:
    engine = audited(exchanged=10**6)
    train_once(engine, "a")
    engine.hello("small", profile=NodeProfile(100.0, memory_bytes=15_000_000))
    engine.hello("large", profile=NodeProfile(100.0, memory_bytes=17_000_000))
    asks(engine, "small", "large")
    assert not audits(engine, "small")
    assert audits(engine, "large")


def test_cases_that_wait_are_bounded() -> None:
    engine = audited(checkpoint_seconds=1e9, exchanged=10**6)
    for _ in range(MOST_CASES + 5):
        train_once(engine, "a")
    assert list(engine.machine.parts[Auditing].cases) == list(range(6, MOST_CASES + 6))  # type: ignore[attr-defined]
    assert [note.assignment for _, note in unaudited(engine)] == [1, 2, 3, 4, 5]
    assert {note.reason for _, note in unaudited(engine)} == {f"more than {MOST_CASES} newer ones waited"}


def test_cases_that_are_open_at_the_runs_end_are_named() -> None:
    engine = audited()
    done = train_once(engine, "a")
    asks(engine, "b")
    (task,) = audits(engine, "b")
    engine.handle(ev.StopRequested("enough"))
    while jobs := [job for job in engine.jobs if not isinstance(job, act.Finish)]:
        engine.answer(jobs[0])
    assert engine.state.progress.finished
    assert unaudited(engine) == [("a", notes.Unaudited(done.id, "the run came to its end before that"))]
    places = [type(d.note) for d in engine.journal if isinstance(d, Noted)]
    assert places.index(notes.Unaudited) < places.index(notes.Finished)
    engine.offer("b", sketched(task))
    assert told(engine) == []


def test_cases_that_are_open_when_the_controller_is_stopped_are_named() -> None:
    engine = audited()
    done = train_once(engine, "a")
    engine.handle(ev.InterruptRequested("SIGTERM"))
    assert unaudited(engine) == [("a", notes.Unaudited(done.id, "the controller was stopped before that"))]


def test_a_node_that_a_version_lacks_trains_before_it_audits() -> None:
    engine = audited(minimum_nodes=2, buffer_size=2)
    engine.hello("a")
    asks(engine, "b")
    (task,) = engine.held["b"].values()
    engine.handle(ev.Received("b", Decline(task.id, "not now")))
    del engine.held["b"][task.id]
    train_once(engine, "a")
    asks(engine, "b")
    assert [type(task) for task in engine.held["b"].values()] == [Train], "its work makes the version"
    engine.offer("b", contribution(next(iter(engine.held["b"].values()))))
    settle(engine)
    assert engine.state.newest.version == 1
    asks(engine, "b")
    assert not audits(engine, "b")
    asks(engine, "b")
    assert audits(engine, "b"), "what the next version needs of it, it has in hand"


def test_once_the_budget_is_met_only_nodes_that_the_last_version_lacks_train() -> None:
    engine = audited(tokens=60, minimum_nodes=2, buffer_size=2)
    engine.hello("a")
    asks(engine, "b")
    (held,) = engine.held["b"].values()
    while engine.state.totals.tokens < 60:
        train_once(engine, "a")
    before = engine.state.totals.assigned
    for _ in range(3):
        asks(engine, "a")
    assert engine.state.totals.assigned == before, "what b has makes the version"
    engine.handle(ev.Received("b", Decline(held.id, "not now")))
    del engine.held["b"][held.id]
    asks(engine, "a", "b")
    assert [type(task) for task in engine.held["b"].values()] == [Train]
    assert not engine.held["a"]
    engine.offer("b", contribution(next(iter(engine.held["b"].values()))))
    settle(engine)
    assert engine.state.progress.final


def test_a_node_that_declines_audits_repeatedly_gets_no_more() -> None:
    """So that cases do not lapse by it; what it trains counts as before."""
    engine = audited()
    for _ in range(MOST_DECLINED + 2):
        train_once(engine, "a")
    for _ in range(MOST_DECLINED):
        asks(engine, "no")
        (task,) = audits(engine, "no")
        engine.handle(ev.Received("no", Decline(task.id, "no")))
        del engine.held["no"][task.id]
    asks(engine, "no")
    assert [type(task) for task in engine.held["no"].values()] == [Train]
    engine.observed(no=100.0)
    assert not engine.machine.parts[Evaluation].suits(engine.state.nodes["no"], 0)
    asks(engine, "yes")
    (task,) = audits(engine, "yes")
    engine.offer("yes", sketched(task))
    assert [note.by for _, note in told(engine)] == ["yes"]


def test_a_completed_audit_resets_the_count_of_declined_ones() -> None:
    engine = audited()
    for number in range(2 * MOST_DECLINED):
        train_once(engine, "a")
        asks(engine, "b")
        (task, *_) = audits(engine, "b")
        if number % 2:
            engine.offer("b", sketched(task))
        else:
            engine.handle(ev.Received("b", Decline(task.id, "not now")))
            del engine.held["b"][task.id]
    assert not engine.machine.parts[Membership].is_unwilling("b")


def test_a_node_that_does_not_know_the_kind_is_not_given_any() -> None:
    engine = audited()
    train_once(engine, "a")
    engine.hello("b", kinds=("train",))
    engine.next("b")
    assert [type(task) for task in engine.held["b"].values()] == [Train]


def test_a_task_names_blobs_that_are_held_for_it() -> None:
    engine = audited()
    train_once(engine, "a")
    asks(engine, "b")
    (task,) = audits(engine, "b")
    assert {update.blob for update in task.back} <= {update.blob for update in task.updates}
    assert len(task.back) == 1


def test_a_node_on_probation_audits_only_when_no_other_node_can() -> None:
    engine = audited()
    train_once(engine, "a")
    for node in ("b", "c"):
        engine.hello(node)
    on_probation(engine, "b")
    asks(engine, "b")
    assert not audits(engine, "b"), "c can do it"
    asks(engine, "c")
    (task,) = audits(engine, "c")
    engine.handle(ev.Received("c", Decline(task.id, "no")))
    engine.held["c"].clear()
    asks(engine, "b")
    assert audits(engine, "b"), "c was asked"


# Votes that count


def crowd(*names: str, key: bytes = b"key", **owners: str) -> Engine:
    """Return a stateless run that audits every contribution.

    `names` are the nodes, and `owners` gives the owners of some of them.
    """
    settings = {"tokens": 10**6, "buffer_size": 1, "audits": AuditSettings(1.0, key, 0.02, NUDGE), **STATELESS}
    engine = Engine(engine_settings(**settings), owners)
    for name in names:
        engine.hello(name)
    return engine


def answers(engine: Engine, node: str, agrees: bool) -> bool:
    """Return whether the node gets an audit; the node then reports that the result agrees with the upload, or not."""
    engine.next(node)
    for task in audits(engine, node):
        engine.offer(node, sketched(task, sketch=SKETCH if agrees else OTHER_SKETCH))
        settle(engine)
        return True
    return False


NUDGE = 2.0**-20
"""The perturbation of a task's start, once its result was contradicted."""


def convicted(engine: Engine) -> set[str]:
    return {d.node for d in engine.journal if isinstance(d, Noted) and isinstance(d.note, notes.Convicted)}


def test_a_contradicted_audit_is_repeated_from_perturbed_parameters() -> None:
    engine, found = crowd("a", "b", "c"), list[float]()
    train_once(engine, "a")
    for node in ("b", "c"):
        engine.next(node)
        (task,) = audits(engine, node)
        found.append(task.perturbation)
        engine.offer(node, sketched(task, sketch=OTHER_SKETCH))
    assert found == [0.0, NUDGE]
    assert convicted(engine) == {"a"}


def test_nodes_whose_results_differ_by_rounding_are_not_convicted() -> None:
    """All but one of the honest nodes come to the same bits, unless a perturbation comes to other ones each time."""
    engine = crowd("other", *(alike := [f"b{number}" for number in range(MOST_ANSWERS + 1)]))
    task = train_once(engine, "other")
    for number, node in enumerate(alike, 1):
        engine.next(node)
        for audit in audits(engine, node):
            own = np.eye(MOST_ANSWERS + 2, SKETCH_SIZE, dtype="<f4")[number].tobytes()
            engine.offer(node, sketched(audit, sketch=own if audit.perturbation else OTHER_SKETCH))
            settle(engine)
    assert convicted(engine) == set()
    assert [note.by for _, note in told(engine)] == alike[:MOST_ANSWERS], "and not the whole fleet does it again"
    reason = f"{MOST_ANSWERS} nodes came to different results"
    assert unaudited(engine) == [("other", notes.Unaudited(task.id, reason))]


def test_two_nodes_of_one_owner_do_not_convict_a_third() -> None:
    engine = crowd("eve1", "eve2", "bob", "cat", eve1="eve", eve2="eve")
    train_once(engine, "bob")
    assert answers(engine, "eve1", agrees=False)
    assert not answers(engine, "eve2", agrees=False), "one of its owner's has said so already"
    assert answers(engine, "cat", agrees=True)
    assert [note.sound for _, note in told(engine)] == [None, True]
    assert convicted(engine) == {"eve1"}


def test_two_nodes_of_one_owner_convict_no_node_when_alone() -> None:
    engine = crowd("eve1", "eve2", "bob", eve1="eve", eve2="eve")
    train_once(engine, "bob")
    assert answers(engine, "eve1", agrees=False)
    assert not answers(engine, "eve2", agrees=False)
    assert convicted(engine) == set()
    engine.hello("cat")
    assert answers(engine, "cat", agrees=True)
    assert convicted(engine) == {"eve1"}


def test_one_does_not_speak_for_the_other() -> None:
    engine = crowd("eve1", "eve2", "bob", "cat", eve1="eve", eve2="eve")
    train_once(engine, "eve1")
    assert not answers(engine, "eve2", agrees=True), "others are there"
    assert answers(engine, "bob", agrees=False)
    engine.handle(ev.Lost("cat", "killed"))
    assert answers(engine, "eve2", agrees=True), "nobody else is there, and it might say so too"
    assert [note.sound for _, note in told(engine)] == [None, None]
    engine.hello("cat")
    assert answers(engine, "cat", agrees=False)
    assert convicted(engine) == {"eve1", "eve2"}


def test_against_its_own_owners_a_node_counts() -> None:
    engine = crowd("eve", "neighbour", "bob", eve="lab", neighbour="lab")
    train_once(engine, "eve")
    assert answers(engine, "bob", agrees=False)
    assert answers(engine, "neighbour", agrees=False)
    assert convicted(engine) == {"eve"}


def test_where_all_are_of_one_network_each_counts() -> None:
    names = ("eve", "ann", "bob", "cat")
    engine = crowd(*names, **dict.fromkeys(names, "lab"))
    train_once(engine, "ann")
    assert answers(engine, "bob", agrees=True)
    train_once(engine, "eve")
    assert answers(engine, "ann", agrees=False)
    assert answers(engine, "cat", agrees=False)
    assert [note.sound for _, note in told(engine)] == [True, None, False]
    assert convicted(engine) == {"eve"}


def test_an_audit_does_not_wait_for_a_node_that_only_trains() -> None:
    engine = crowd("ann", "bob", ann="lab", bob="lab")
    engine.hello("trains", kinds=("train",))
    train_once(engine, "ann")
    assert answers(engine, "bob", agrees=True)
    engine.hello("else")
    train_once(engine, "bob")
    assert not answers(engine, "ann", agrees=True), "somebody else is there"
    engine.leave("else")
    assert answers(engine, "ann", agrees=True)


@pytest.mark.parametrize("seed", range(20))
def test_colluders_of_one_owner_gain_nothing_by_their_number(seed: int) -> None:
    """The colluders lie in every upload, confirm each other's lies, and report that all other nodes lie."""
    rng, honest, liars = random.Random(seed), ["bob", "cat", "dan"], ["eve1", "eve2", "eve3"]
    engine = crowd(*honest, *liars, **dict.fromkeys(liars, "eve"))
    for _ in range(60):
        there = [name for name in honest + liars if name not in convicted(engine)]
        node = rng.choice(there)
        engine.next(node)
        for task in list(engine.held[node].values()):
            if isinstance(task, Audit):
                whose = engine.account.tasks[task.train.id].node
                agrees = (node in liars) == (whose in liars)
                engine.offer(node, sketched(task, sketch=SKETCH if agrees else OTHER_SKETCH))
            else:
                engine.offer(node, contribution(task))
            settle(engine)
    assert convicted(engine) == set(liars)
    assert set() < {node for node, note in told(engine) if note.sound} <= set(honest)


def test_the_owner_of_a_node_survives_new_keys_and_a_restart() -> None:
    engine = crowd("bob", bob="lab")
    engine.handle(ev.Rekeyed("bob", "another key", "a signer"))
    engine.crash()
    assert engine.state.nodes["bob"].badge == Badge("another key", "a signer", WORKER, "lab")
    assert (engine.state.nodes["bob"].owner, NodeState("cat").owner) == ("lab", "cat")


# Draw of the auditors


def drawn(engine: Engine, nodes: list[str]) -> set[str]:
    """Return the nodes that may by now do the only audit."""
    kind: Any = engine.machine.parts[Auditing]
    (case,) = kind.cases.values()
    return {node for node in nodes if kind._is_drawn(engine.state.nodes[node], case)}


def test_auditors_are_drawn_by_key_and_not_by_the_order_of_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller draws a few nodes, different ones for each contribution.

    In the end any node may audit. Nodes that the controller found sound come first.
    """
    monkeypatch.setattr(auditing, "DRAWN", 2.0)
    names, seen = [f"n{number}" for number in range(40)], list[set[str]]()
    for key in range(20):
        engine = crowd(*names, key=bytes([key]))
        for name in names[:20]:
            for state in (engine.state, engine.shadow):
                state.nodes[name].tally.reputation = Reputation(sound=3)
        train_once(engine, "n0")
        seen.append(drawn(engine, names))
        later = list[set[str]]()
        for _ in range(6):
            engine.now += LONGEST_WINDOW
            engine.machine.context.now = engine.now
            later.append(drawn(engine, names))
        assert all(before <= after for before, after in pairwise([seen[-1], *later])), "who was drawn remains so"
        assert later[-1] == set(names)
    assert 1.0 <= sum(map(len, seen)) / len(seen) <= 2.5  # half of two of 39, and a quarter
    assert len(set.union(*seen)) > 10
    sound = sum(name in one for one in seen for name in names[:20])
    assert sound > 1.3 * sum(name in one for one in seen for name in names[20:])


def test_a_drawn_auditor_is_found_within_few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handful of those who ask, however many there are, and not mostly the first: nothing waits for long."""
    monkeypatch.setattr(auditing, "DRAWN", 2.0)
    names, places = [f"n{number}" for number in range(64)], list[int]()
    for key in range(40):
        engine = crowd(*names, key=bytes([key]))
        train_once(engine, "n0")
        for place, name in enumerate(names[1:]):
            for _ in range(3):  # the controller passes a node over once, however often it asks
                engine.next(name)
            if audits(engine, name):
                places.append(place)
                break
            engine.held[name].clear()
    assert len(places) == 40
    assert max(places) <= 6
    assert sum(place == 0 for place in places) <= 6


def test_where_few_are_there_each_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing, "DRAWN", 2.0)
    for share in (1, 2, 3):
        engine = crowd(*(names := [f"n{number}" for number in range(share)]))
        train_once(engine, "n0")
        assert drawn(engine, names) == set(names)


# At what pace


def test_an_unaudited_node_works_at_the_pace_of_others() -> None:
    """A node's claimed speed has no effect until another node has audited one of its tasks and agrees with it."""
    engine = crowd("a", "b", "c", "x")
    engine.observed(a=1.0, b=1.0, c=1.0)
    train_once(engine, "x")
    held = held_until(engine, "x")
    assert held == engine.now + engine.settings.tasks.tokens / PACE
    asks(engine, "x")
    assert not engine.held["x"], "it has to wait"
    assert answers(engine, "a", agrees=True)
    assert held_until(engine, "x") == 0.0
    asks(engine, "x")
    assert engine.held["x"]


def test_nodes_are_not_paced_when_audits_do_not_judge() -> None:
    engine = audited()
    engine.hello("a")
    engine.observed(a=1.0)
    train_once(engine, "a")
    assert held_until(engine, "a") == 0.0
