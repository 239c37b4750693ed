"""The controller's machine: its walk from an offer to a version, and what a restart changes."""

from __future__ import annotations

import pytest

from barnraise.controller.state import actions as act
from barnraise.controller.state import effects
from barnraise.controller.state import events as ev
from barnraise.core.types import Blob
from barnraise.ledger.decisions import Assigned, Judged, NodeChanged, Noted, VersionClosed, VersionMade
from barnraise.ledger.notes import FrameDropped
from barnraise.staleness import create as staleness
from barnraise.wire.messages import Offer, RequestTask

from ...state_machine.engine import Engine, contribution, digest, engine_settings


def kinds(actions: list[act.Action]) -> list[str]:
    """Names of actions; of journaled decisions and messages theirs."""
    found = []
    for action in actions:
        inner = getattr(action, "decision", getattr(action, "message", action))
        found.append(inner.kind if isinstance(inner, Noted) else type(inner).__name__)
    return found


def working() -> Engine:
    engine = Engine(engine_settings())
    engine.hello("a")
    engine.next("a")
    return engine


def test_the_walk_of_a_contribution() -> None:
    engine = Engine(engine_settings())
    assert [type(d) for d in engine.journal] == [Noted]
    assert kinds(engine.jobs) == ["Evaluate"]
    engine.hello("a")
    assert [type(d) for d in engine.journal[1:]] == [NodeChanged, NodeChanged, Noted]
    assert kinds(engine.handle(ev.Received("a", RequestTask(0)))) == ["Assigned", "Assign"]
    task = engine.held["a"][1]
    assert kinds(engine.handle(ev.Received("a", Offer(contribution(task))))) == ["Receive"]
    assert engine.machine.handle(ev.Arrived("a", 1, 419), 1.0) == []
    assert kinds(engine.machine.handle(ev.Arrived("a", 1, 420), 1.0)) == ["Inspect"]
    actions = engine.machine.handle(effects.Inspected(1, 1, 2.5), 1.0)
    assert kinds(actions) == ["Judged", "Ack", "VersionClosed", "Aggregate"]
    verdict = actions[0].decision  # type: ignore[attr-defined]
    assert (verdict.norm, verdict.tokens, verdict.weighing.weight, verdict.staleness) == (2.5, 12, 12.0, 0)
    made = effects.Aggregated(1, 1, digest(1), Blob(digest(9), 90))
    assert kinds(engine.machine.handle(made, 1.5)) == ["VersionMade"]
    assert (engine.state.newest.version, engine.state.newest.digest, engine.state.newest.time) == (1, digest(1), 1.5)


def test_every_effect_follows_the_decision_that_it_depends_on() -> None:
    engine = working()
    seen: list[act.Action] = []
    for event in (
        ev.Received("a", Offer(contribution(engine.held["a"][1]))),
        ev.Arrived("a", 1, 420),
        effects.Inspected(1, 1, 1.0),
        effects.Aggregated(1, 1, digest(1), Blob(digest(9), 90)),
    ):
        seen += engine.machine.handle(event, 1.0)
    order = kinds(seen)
    assert order.index("Judged") < order.index("Ack")
    assert order.index("Judged") < order.index("VersionClosed") < order.index("Aggregate")


def test_a_contribution_offered_twice_counts_once() -> None:
    engine = working()
    offered = contribution(engine.held["a"][1])
    engine.offer("a", offered)
    assert engine.handle(ev.Received("a", Offer(offered))) == []
    engine.answer(engine.jobs[-1])
    engine.offer("a", offered)
    assert engine.state.totals.accepted == 1
    assert engine.payloads == set()


def test_work_of_another_node_is_not_taken() -> None:
    engine = working()
    engine.hello("b")
    offered = contribution(engine.held["a"][1])
    engine.offer("b", offered)
    assert engine.state.works[1].node == "a"
    engine.offer("a", offered)
    engine.offer("b", offered)  # while it is inspected
    assert engine.payloads == {("a", 1)}


@pytest.mark.parametrize("late", [True, False])
def test_results_of_a_dead_epoch_change_nothing(late: bool) -> None:
    engine = working()
    offered = contribution(engine.held["a"][1])
    engine.offer("a", offered)
    engine.crash()
    engine.hello("a", pending=(1,), working=())
    if late:
        engine.offer("a", offered)  # inspected again, when the old result comes
    while engine.late:
        engine.deliver_late()
    if not late:
        engine.offer("a", offered)
    engine.answer(next(job for job in engine.jobs if isinstance(job, effects.Inspect)))
    assert engine.state.totals.accepted == 1


def test_a_version_that_was_closed_is_made_after_a_restart() -> None:
    engine = working()
    engine.offer("a", contribution(engine.held["a"][1]))
    engine.answer(engine.jobs[-1])
    (before,) = (job for job in engine.jobs if isinstance(job, effects.Aggregate))
    engine.crash()
    (again,) = (job for job in engine.jobs if isinstance(job, effects.Aggregate))
    assert (again.version, again.slots, again.rate) == (before.version, before.slots, before.rate)
    assert again.epoch == before.epoch + 1
    engine.answer(again)
    assert [type(d) for d in engine.journal if isinstance(d, VersionMade)] == [VersionMade]


def test_an_evaluation_that_a_crash_prevented_is_done_after_it() -> None:
    engine = Engine(engine_settings())
    engine.crash()
    assert kinds(engine.jobs) == ["Evaluate"]


def test_a_refused_contribution_leaves_its_rows_for_others() -> None:
    engine = working()
    engine.offer("a", contribution(engine.held["a"][1]))
    engine.answer(engine.jobs[-1], good=False)
    assert engine.state.totals.refused == 1
    assert list(engine.state.redo) == [1]
    engine.next("a")
    again = engine.journal[-1]
    assert isinstance(again, Assigned)
    assert again.redo == 1


def test_weights_fall_with_staleness_and_ignore_claims() -> None:
    engine = Engine(
        engine_settings(staleness=staleness("fixed", max_staleness=5, weighting="inverse_sqrt"), buffer_size=1)
    )
    for node in ("a", "b"):
        engine.hello(node)
        engine.next(node)
    for node in ("a", "b"):
        engine.offer(node, contribution(next(iter(engine.held[node].values())), seconds=1e-9))
        while engine.jobs:
            engine.answer(engine.jobs[-1])
    verdicts = [d for d in engine.journal if isinstance(d, Judged)]
    assert [(d.staleness, d.weighing.weight) for d in verdicts] == [(0, 12.0), (1, 6.0)]


def test_a_weight_is_fixed_when_the_payload_is_asked_for() -> None:
    """A version that is made while the payload is on its way makes it staler, and no lighter."""
    weights = staleness("fixed", max_staleness=5, weighting="inverse_sqrt")
    engine = Engine(engine_settings(staleness=weights, buffer_size=1))
    for node in ("a", "b"):
        engine.hello(node)
        engine.next(node)
    results = {node: contribution(next(iter(engine.held[node].values()))) for node in ("a", "b")}
    engine.handle(ev.Received("b", Offer(results["b"])))
    assert ("b", results["b"].assignment) in engine.wanted
    engine.offer("a", results["a"])
    while engine.jobs:
        engine.answer(engine.jobs[-1])
    assert engine.state.newest.version == 1
    engine.upload("b", results["b"].assignment)
    while engine.jobs:
        engine.answer(engine.jobs[-1])
    late = [d for d in engine.journal if isinstance(d, Judged)][-1]
    assert (late.node, late.staleness, late.weighing.weight) == ("b", 1, 12.0)
    assert late.weighing.trust == engine.state.nodes["b"].tally.reputation.weight()


def test_notes_are_kept_for_the_reader() -> None:
    engine = Engine(engine_settings())
    engine.handle(ev.Dropped("a", "too long"))
    engine.handle(ev.Traffic(5, 7))
    note = engine.journal[-2]
    assert isinstance(note, Noted)
    assert (note.node, note.note) == ("a", FrameDropped("too long", 1))
    assert (engine.state.totals.bytes_up, engine.state.totals.bytes_down) == (5, 7)


def test_slots_hold_a_nodes_contributions_in_order() -> None:
    engine = Engine(engine_settings(buffer_size=2))
    for node in ("a", "b"):
        engine.hello(node)
    for node in ("a", "a", "b"):
        engine.next(node)
        engine.offer(node, contribution(next(iter(engine.held[node].values()))))
        engine.answer(engine.jobs[-1])
    (aggregate,) = (job for job in engine.jobs if isinstance(job, effects.Aggregate))
    assert [(slot.node, [i for i, *_ in slot.contributions]) for slot in aggregate.slots] == [("a", [1, 2]), ("b", [3])]
    closed = engine.journal[-1]
    assert isinstance(closed, VersionClosed)
    assert closed.contributions == (1, 2, 3)


def test_nothing_is_credited_that_was_not_done() -> None:
    engine = working()
    engine.offer("a", contribution(engine.held["a"][1], steps=0))
    verdict = engine.account.verdicts[1]
    assert (verdict.verdict, engine.state.totals.tokens) == ("refused", 0)
    assert "claims no step" in verdict.reason


def test_another_node_completes_the_rest_of_an_interrupted_task() -> None:
    engine = working()
    engine.offer("a", contribution(engine.held["a"][1], steps=1))
    engine.answer(engine.jobs[-1])
    assert (engine.state.totals.tokens, engine.account.verdicts[1].weighing.weight) == (6, 6.0)
    engine.hello("b")
    engine.next("b")
    (rest,) = engine.held["b"].values()
    assert (rest.rows, rest.local_steps, rest.batches.skip, rest.tokens) == (engine.account.tasks[1].rows, 1, 1, 6)
    assert rest.batches.seed == engine.settings.tasks.seed + 1, "its batches are those of the task that it goes on with"
    engine.offer("b", contribution(rest))
    engine.answer(next(job for job in engine.jobs if isinstance(job, effects.Inspect)))
    assert engine.state.totals.tokens == 12
