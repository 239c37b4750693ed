"""Held-out loss by workers: the assignment of rows and versions to nodes, and the use of a measurement."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from barnraise.controller.fleet.records import NodeRecords
from barnraise.controller.fleet.speeds import OVERDUE
from barnraise.controller.state import effects
from barnraise.controller.state import events as ev
from barnraise.controller.state.settings import EvaluationSettings
from barnraise.controller.versions.evaluation import BATCH_ROWS, FORWARD, LONGEST, PATIENCE, TIMES, Evaluation
from barnraise.controller.versions.publishing import Publishing
from barnraise.controller.work.dispatch import Dispatch
from barnraise.core.types import MOST_UNDONE, Evaluate, Flush, Train
from barnraise.ledger import notes
from barnraise.ledger.decisions import Judged, Noted
from barnraise.staleness import create as staleness

from ....state_machine.chances import FLUSH, wrong_kind
from ....state_machine.engine import Engine, answer_to, contribution, engine_settings, finding, on_probation

ONE = dict.fromkeys(["a", "b", "c", "d", "slow", "old", "far", "near"], "x")
"""All nodes are one owner's: each piece is measured once."""

FOUR = {name: name for name in "abcd"}


def measured(rows: int = 40, most_loss: float = math.inf, owners: Mapping[str, str] = ONE, **changes: Any) -> Engine:
    """Return a run whose workers measure versions on `rows` rows."""
    plan = EvaluationSettings(times=4, rows=rows, row_tokens=3, file=2, by_workers=True, most_loss=most_loss)
    return Engine(engine_settings(evaluations=plan, **{"buffer_size": 1} | changes), owners)


def asks(engine: Engine, *nodes: str) -> None:
    for node in nodes:
        if node not in engine.machine.parts[NodeRecords].present:
            engine.hello(node)
        engine.next(node)


def evaluations(engine: Engine, node: str) -> list[Evaluate]:
    """Those that the node has in hand."""
    return [task for task in engine.held.get(node, {}).values() if isinstance(task, Evaluate)]


def losses(engine: Engine) -> list[tuple[int, float | None, int]]:
    """Version, loss and tokens of what is on the ledger."""
    told = [d.note for d in engine.journal if isinstance(d, Noted)]
    return [(note.version, note.loss, note.tokens) for note in told if isinstance(note, notes.Evaluated)]


def train_once(engine: Engine, node: str) -> None:
    """The node contributes, and a version is made of it."""
    asks(engine, node)
    for task in [task for task in engine.held[node].values() if isinstance(task, Train)]:
        engine.offer(node, contribution(task))
    while jobs := [job for job in engine.jobs if isinstance(job, effects.Inspect | effects.Aggregate)]:
        engine.answer(jobs[0])


def wait(engine: Engine, seconds: float, *nodes: str) -> None:
    """Time passes, in which the nodes are heard."""
    for _ in range(math.ceil(seconds)):
        for node in nodes:
            engine.heartbeat(node)
        engine.tick(1.0)


def test_nodes_share_a_version_in_pieces_as_long_as_a_training_task() -> None:
    engine = measured(rows=100, local_steps=12)  # 12 steps of 2 rows: 72 rows without the backward pass, 64 of 16
    asks(engine, "a", "b", "c")
    assert [(task.held_out.start, task.held_out.stop) for task in evaluations(engine, "a")] == [(0, 64)]
    assert [(task.held_out.start, task.held_out.stop) for task in evaluations(engine, "b")] == [(64, 100)]
    assert [type(task) for task in engine.held["c"].values()] == [Train], "nothing was left for it"
    (piece,) = evaluations(engine, "a")
    assert (piece.steps, piece.tokens) == (4, 64 * 3)
    assert 64 <= FORWARD * 12 * 2 < 64 + BATCH_ROWS


def test_a_slow_node_gets_no_evaluation_while_faster_nodes_are_live() -> None:
    """A batch takes the slow one as long as hundreds of the others' tasks; alone, it is as fast as any."""
    engine = measured(BATCH_ROWS)
    for node in ("a", "b", "slow"):
        engine.hello(node)
    engine.observed(a=100.0, b=100.0, slow=0.1)
    train_once(engine, "slow")
    assert not evaluations(engine, "slow")
    asks(engine, "slow")
    assert not evaluations(engine, "slow")
    for node in ("a", "b"):
        engine.leave(node)
    engine.observed(slow=0.1)
    train_once(engine, "slow")
    asks(engine, "slow")
    assert evaluations(engine, "slow")


def test_nodes_that_ask_at_once_all_get_something() -> None:
    """One piece may be all that there is: who gets none of it trains."""
    engine = measured(rows=40, local_steps=12, asynchronous=False)
    for node in ("a", "b", "c"):
        engine.hello(node)
    engine.machine.parts[Dispatch].asking.update(dict.fromkeys(("a", "b", "c"), 0))
    engine.said |= dict.fromkeys(("a", "b", "c"), 0)
    engine.handle(ev.Tick())
    assert sorted(type(task).__name__ for held in engine.held.values() for task in held.values()) == [
        "Evaluate",
        "Train",
        "Train",
    ]
    assert not engine.machine.parts[Dispatch].asking


def test_the_loss_is_the_mean_of_the_pieces_by_their_weights() -> None:
    engine = measured()
    asks(engine, "a", "b", "a")
    for node, loss, weight in (("a", 3.0, 30), ("b", 1.0, 10), ("a", 2.0, 0)):
        engine.offer(node, finding(evaluations(engine, node)[0], loss=loss, weight=weight))
    assert losses(engine) == [(0, 2.5, 0)]
    assert (engine.state.totals.tokens, engine.state.totals.staleness, engine.state.newest.version) == (0, 0, 0)
    assert not engine.state.record.findings


@pytest.mark.parametrize("loss", [math.nan, math.inf, 1e300, 9.01])
def test_a_loss_that_no_model_has_is_not_believed_of_a_worker(loss: float) -> None:
    """The controller measures that version itself: as it is, or, where the model diverged, as no loss."""
    engine = measured(rows=32, most_loss=9.0)
    asks(engine, "a", "b")
    engine.offer("a", finding(evaluations(engine, "a")[0], loss=loss))
    (verdict,) = [d for d in engine.journal if isinstance(d, Judged)]
    assert verdict.verdict == "refused"
    assert "at most 9 is believed" in verdict.reason
    (job,) = [job for job in engine.jobs if isinstance(job, effects.Evaluate)]
    for task in evaluations(engine, "b"):
        engine.offer("b", finding(task, loss=2.0))
    assert losses(engine) == []
    engine.answer(job)
    assert [loss for _, loss, _ in losses(engine)] != [loss]
    asks(engine, "a", "b")
    train_once(engine, "b")
    assert not engine.machine.parts[Evaluation].doubted  # type: ignore[attr-defined]


def test_a_loss_at_the_bound_is_believed() -> None:
    engine = measured(rows=16, most_loss=9.0)
    asks(engine, "a")
    engine.offer("a", finding(evaluations(engine, "a")[0], loss=9.0))
    assert losses(engine) == [(0, 9.0, 0)]


def test_a_loss_that_is_no_number_is_told_as_none() -> None:
    engine = measured(rows=16, most_loss=9.0)
    asks(engine, "a")
    engine.offer("a", finding(evaluations(engine, "a")[0], loss=math.nan))
    (job,) = [job for job in engine.jobs if isinstance(job, effects.Evaluate)]
    engine.jobs.remove(job)
    engine.handle(effects.Evaluated(job.epoch, job.version, math.nan))
    assert losses(engine) == [(0, None, 0)]
    engine.crash()
    assert math.isnan(engine.state.record.evaluations[0][1])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"steps": 0}, "claims no step"),
        ({"weight": 10**6}, "claims 1000000 predictions, but its rows have 48 tokens"),
        ({"loss": -1.0}, "loss is -1.0"),
        ({"base": 9}, "base is version 9"),
    ],
)
def test_an_impossible_measurement_is_refused_and_another_node_repeats_it(changes: dict[str, Any], reason: str) -> None:
    engine = measured(rows=16)
    asks(engine, "a", "b")
    (piece,) = evaluations(engine, "a")
    engine.offer("a", finding(piece, **changes))
    verdict = next(d for d in engine.journal if isinstance(d, Judged))
    assert verdict.verdict == "refused"
    assert reason in verdict.reason
    asks(engine, "b")
    (again,) = evaluations(engine, "b")
    assert again.held_out == piece.held_out


def test_a_part_of_a_measurement_is_no_answer() -> None:
    engine = measured(rows=32, local_steps=12)
    asks(engine, "a")
    engine.offer("a", finding(evaluations(engine, "a")[0], steps=1))
    assert [d.reason for d in engine.journal if isinstance(d, Judged)] == ["measures 1 batches, but 2 were assigned"]


def test_an_answer_of_another_kind_is_refused() -> None:
    engine = measured(rows=16)
    asks(engine, "a", "b")
    for node in ("a", "b"):
        (task,) = engine.held[node].values()
        engine.offer(node, wrong_kind(task))
    assert [d.reason for d in engine.journal if isinstance(d, Judged)] == [
        "a contribution is no answer to a task of the kind evaluate",
        "a finding is no answer to a task of the kind train",
    ]
    assert len(engine.state.redo) == 2


def test_a_node_that_cannot_evaluate_trains() -> None:
    engine = measured()
    engine.hello("old", kinds=("train", "flush"))
    engine.next("old")
    assert [type(task) for task in engine.held["old"].values()] == [Train]


def test_a_lost_piece_goes_to_the_next_node_that_asks_with_deltas_back() -> None:
    engine = measured(rows=32)
    asks(engine, "a", "b")
    (kept,), (lost,) = evaluations(engine, "a"), evaluations(engine, "b")
    train_once(engine, "a")
    assert engine.state.newest.version == 1
    engine.handle(ev.Lost("b", "killed"))
    engine.hello("far")
    engine.next("far", 1)
    (again,) = evaluations(engine, "far")
    assert (again.base, again.version, again.held_out) == (1, 0, lost.held_out)
    assert ([update.version for update in again.news.updates], [update.version for update in again.back]) == ([], [1])
    engine.offer("far", finding(again, loss=1.0))
    engine.offer("a", finding(kept, loss=2.0))
    assert losses(engine) == [(0, 1.5, 0)], "the tokens are those of the version, not of the time"


def test_a_subscriber_is_notified_of_versions_after_its_own() -> None:
    """The task that it was given brings it to the newest version: the next news begin there."""
    engine = measured(rows=32)
    asks(engine, "a", "b")
    train_once(engine, "a")
    engine.handle(ev.Lost("b", "killed"))
    engine.hello("c")
    engine.machine.parts[Publishing].watching["c"] = 0  # it said so, and was not told yet
    engine.watching.add("c")
    engine.watched["c"] = 0
    engine.next("c", 0)
    assert [(task.base, task.version) for task in evaluations(engine, "c")] == [(1, 0)]
    assert engine.machine.parts[Publishing].watching["c"] == 1


MANY = {"tokens": 10**6, "staleness": staleness("fixed", max_staleness=200)}


def leave_behind(engine: Engine, node: str) -> None:
    """Let the node make versions until no deltas lead back from the newest to the one that is measured."""
    for _ in range(MOST_UNDONE + 1):
        train_once(engine, node)


def test_the_controller_measures_an_evaluation_that_no_node_completes() -> None:
    engine = measured(rows=32)
    asks(engine, "a", "b")
    (kept,) = evaluations(engine, "a")
    train_once(engine, "a")
    engine.handle(ev.Lost("b", "killed"))
    wait(engine, PATIENCE - 2, "a")
    assert not engine.jobs or not any(isinstance(job, effects.Evaluate) for job in engine.jobs)
    engine.offer("a", finding(kept))
    wait(engine, PATIENCE + 2, "a")
    (job,) = [job for job in engine.jobs if isinstance(job, effects.Evaluate)]
    assert job.version == 1
    engine.answer(job)
    assert losses(engine) == [(1, 2.0, 12)]
    assert not engine.state.record.findings
    assert not [work for work in engine.state.redo.values() if work.kind == "evaluate"]


def beyond_reach(engine: Engine, node: str) -> None:
    """A piece is lost of the version that is measured, and no way leads back to that any more."""
    assert evaluations(engine, "b")
    for task in evaluations(engine, node):
        engine.offer(node, finding(task))
    engine.handle(ev.Lost("b", "killed"))
    engine.machine.parts[Dispatch].asking.clear()
    engine.hello("old", kinds=("train", "flush"))
    leave_behind(engine, "old")
    engine.next(node, engine.state.newest.version)


def test_a_version_without_a_way_back_is_given_up_for_the_newest() -> None:
    engine = measured(rows=32, **MANY)
    asks(engine, "a", "b")
    beyond_reach(engine, "a")
    (first,) = evaluations(engine, "a")
    assert (first.version, first.held_out.start) == (MOST_UNDONE + 1, 0)
    engine.offer("a", finding(first))
    engine.next("a")
    (second,) = evaluations(engine, "a")
    engine.offer("a", finding(second, loss=4.0))
    ((version, loss, tokens),) = losses(engine)
    assert (version, tokens) == (first.version, 12 * first.version)
    assert loss is not None
    assert 2.0 < loss < 4.0
    assert not any(isinstance(job, effects.Evaluate) for job in engine.jobs)
    assert not engine.state.record.findings
    assert not [work for work in engine.state.redo.values() if work.kind == "evaluate"]


def test_a_version_is_not_given_up_while_a_node_measures_it() -> None:
    engine = measured(rows=32, **MANY)
    asks(engine, "a", "b")
    engine.hello("old", kinds=("train", "flush"))
    leave_behind(engine, "old")
    for node in ("a", "b"):
        engine.offer(node, finding(evaluations(engine, node)[0], loss=1.5))
    assert losses(engine) == [(0, 1.5, 0)]


def test_workers_begin_with_a_few_versions_only() -> None:
    engine = measured(rows=32, **MANY)
    asks(engine, "a", "b")
    for begun in range(1, TIMES):
        beyond_reach(engine, "a")
        assert [task.version for task in evaluations(engine, "a")] == [begun * (MOST_UNDONE + 1)]
        asks(engine, "b")
    beyond_reach(engine, "a")
    assert not evaluations(engine, "a")
    wait(engine, PATIENCE + 2, "a")
    assert effects.Evaluate in map(type, engine.jobs)


def test_a_finding_that_comes_too_late_is_discarded_with_a_reason() -> None:
    engine = measured(rows=16)
    asks(engine, "a")
    (piece,) = evaluations(engine, "a")
    wait(engine, LONGEST + 2 * PATIENCE, "a")
    engine.offer("a", finding(piece))
    (verdict,) = (d for d in engine.journal if isinstance(d, Judged))
    assert (verdict.verdict, verdict.reason) == ("discarded", "the controller no longer waits for this measurement")


def test_a_node_that_lives_is_waited_for_but_not_for_ever() -> None:
    engine = measured(rows=16)
    asks(engine, "a")
    wait(engine, LONGEST - 2, "a")
    assert not engine.jobs
    wait(engine, PATIENCE + 4, "a")
    assert [type(job) for job in engine.jobs] == [effects.Evaluate]


def test_a_lost_measurement_of_an_evaluated_version_is_not_repeated() -> None:
    engine = measured(rows=16)
    asks(engine, "a", "b")
    wait(engine, LONGEST + 2 * PATIENCE, "a", "b")
    engine.answer(engine.jobs[0])
    engine.leave("a")
    assert not [work for work in engine.state.redo.values() if work.kind == "evaluate"]


def test_a_measurement_continues_after_a_restart() -> None:
    engine = measured(rows=32)
    asks(engine, "a", "b")
    (first,), (second,) = evaluations(engine, "a"), evaluations(engine, "b")
    engine.offer("a", finding(first, loss=1.0))
    engine.crash()
    assert engine.machine.parts[Evaluation].version == 0
    engine.hello("b")
    engine.offer("b", finding(second, loss=2.0))
    assert losses(engine) == [(0, 1.5, 0)]


def test_the_controller_takes_over_a_measurement_abandoned_after_a_restart() -> None:
    engine = measured(rows=32)
    asks(engine, "a", "b")
    engine.crash()
    asks(engine, "c")
    wait(engine, PATIENCE + 20, "c")
    assert [type(job) for job in engine.jobs] == [effects.Evaluate]


def test_the_last_version_is_measured_before_nodes_are_dismissed() -> None:
    engine = measured(rows=16, tokens=12)
    asks(engine, "a")
    engine.offer("a", finding(evaluations(engine, "a")[0]))
    train_once(engine, "a")
    while jobs := [job for job in engine.jobs if not isinstance(job, effects.Evaluate)]:
        engine.answer(jobs[0])
    assert engine.state.progress.final
    assert engine.finished is None
    engine.hello("a")  # its connection was lost
    assert engine.welcomes["a"]
    asks(engine, "a")
    (last,) = evaluations(engine, "a")
    assert last.base == 1
    engine.offer("a", finding(last))
    assert [version for version, *_ in losses(engine)] == [0, 1]
    assert engine.finished is not None


def test_after_a_restart_at_the_end_nodes_are_let_in_to_measure() -> None:
    engine = measured(rows=16, tokens=12)
    asks(engine, "a")
    engine.offer("a", finding(evaluations(engine, "a")[0]))
    train_once(engine, "a")
    engine.crash()
    engine.welcomes.clear()
    engine.hello("a")
    assert "a" in engine.welcomes
    asks(engine, "a")
    assert [task.base for task in evaluations(engine, "a")] == [1]


def test_the_last_evaluation_does_not_wait_for_a_departed_node() -> None:
    engine = measured(rows=16, tokens=12)
    asks(engine, "a")
    engine.offer("a", finding(evaluations(engine, "a")[0]))
    train_once(engine, "a")
    engine.leave("a")
    assert [job.version for job in engine.jobs if isinstance(job, effects.Evaluate)] == [1]


def test_a_node_asked_for_its_residual_lets_others_measure() -> None:
    engine = measured(rows=16, tokens=12, **FLUSH)
    engine.hello("b", kinds=("train", "flush"))
    asks(engine, "a", "b")
    (piece,) = evaluations(engine, "a")
    train_once(engine, "b")
    assert any(isinstance(task, Flush) for task in engine.held["a"].values())
    assert engine.state.nodes["a"].open != [piece.id]
    assert piece.id in engine.state.redo


def test_versions_on_their_way_to_a_node_that_flushes_are_sent_again() -> None:
    engine = measured(rows=16, tokens=12, **FLUSH)
    asks(engine, "a", "b")
    engine.watch("a", 0)
    engine.machine.parts[NodeRecords]["a"].session.told = 1
    engine.told["a"] = 1
    train_once(engine, "b")
    assert engine.machine.parts[NodeRecords]["a"].session.told == -1


def test_evaluations_do_not_count_as_rounds() -> None:
    """A synchronous round does not wait for who measures."""
    engine = measured(rows=16, asynchronous=False)
    asks(engine, "a", "b")
    assert evaluations(engine, "a")
    train_once(engine, "b")
    assert engine.state.newest.version == 1


def test_all_kinds_are_answered() -> None:
    engine = measured()
    asks(engine, "a", "b", "a", "b")
    for node in ("a", "b"):
        for task in list(engine.held[node].values()):
            engine.offer(node, answer_to(task))
    assert losses(engine)


def test_a_node_that_is_at_a_newer_version_measures_an_older_one() -> None:
    """Else a version that others have left behind would lack the rest of its rows."""
    engine = measured(rows=32)
    engine.hello("old", kinds=("train", "flush"))
    asks(engine, "a")
    engine.watch("a", 0)
    train_once(engine, "old")
    assert engine.told["a"] == 1
    engine.next("a", 0)
    first, second = evaluations(engine, "a")
    assert (first.base, first.back, second.base, second.version, second.news.updates) == (0, (), 1, 0, ())
    for piece in (first, second):
        engine.offer("a", finding(piece, loss=1.5))
    assert losses(engine) == [(0, 1.5, 0)]


def test_a_node_on_probation_measures_only_when_no_other_node_can() -> None:
    engine = measured()
    for node in ("a", "b"):
        engine.hello(node)
    on_probation(engine, "a")
    asks(engine, "a")
    assert not evaluations(engine, "a"), "b can do it"
    asks(engine, "b")
    assert evaluations(engine, "b")
    engine.leave("b")
    asks(engine, "a")
    assert evaluations(engine, "a"), "of those that b leaves, nobody else can do them"


# Two owners


def disputes(engine: Engine) -> list[notes.Disputed]:
    """Return the disputes on the ledger."""
    told = [d.note for d in engine.journal if isinstance(d, Noted)]
    return [note for note in told if isinstance(note, notes.Disputed)]


def owners(engine: Engine) -> list[int]:
    """Return how many owners measured, for each loss."""
    told = [d.note for d in engine.journal if isinstance(d, Noted)]
    return [note.owners for note in told if isinstance(note, notes.Evaluated)]


def test_each_piece_is_measured_by_two_owners() -> None:
    engine = measured(rows=32, owners=FOUR)
    asks(engine, "a", "b", "c", "d")
    rows = {node: [(task.held_out.start, task.held_out.stop) for task in evaluations(engine, node)] for node in FOUR}
    assert rows == {"a": [(0, 16)], "b": [(16, 32)], "c": [(0, 16)], "d": [(16, 32)]}
    for node, loss in (("a", 2.0), ("b", 3.0), ("c", 2.002)):
        assert losses(engine) == []
        engine.offer(node, finding(evaluations(engine, node)[0], loss=loss))
    engine.offer("d", finding(evaluations(engine, "d")[0], loss=3.002))
    ((version, loss, _),) = losses(engine)
    assert (version, loss) == (0, pytest.approx(2.501))
    assert (owners(engine), disputes(engine)) == ([2], [])


@pytest.mark.parametrize("lie", [{"loss": 0.01}, {"loss": 10.0}, {"weight": 0}, {"loss": 2.01}])
@pytest.mark.parametrize("first", [True, False])
def test_one_liar_of_four_owners_does_not_move_the_loss(lie: dict[str, Any], first: bool) -> None:
    """The controller measures the rows on which nodes disagree, and judges no node for it."""
    engine = measured(rows=16, owners=FOUR)
    liar, honest = ("a", "b") if first else ("b", "a")
    asks(engine, "a", "b", "c", "d")
    for node in ("a", "b"):
        engine.offer(node, finding(evaluations(engine, node)[0], **({"loss": 2.0} | (lie if node == liar else {}))))
    (told,) = disputes(engine)
    assert (told.version, told.start, told.stop, told.nodes) == (0, 0, 16, ("a", "b"))
    assert losses(engine) == []
    (job,) = [job for job in engine.jobs if isinstance(job, effects.Evaluate)]
    engine.answer(job)
    assert losses(engine) == [(0, 2.0, 0)]
    assert owners(engine) == [0]
    nodes = engine.state.nodes
    assert nodes[liar].tally.reputation == nodes[honest].tally.reputation
    assert nodes[liar].live
    engine.next(liar)
    assert engine.held[liar], "it gets work as before"


def test_a_dispute_outlives_a_restart_and_is_told_once() -> None:
    engine = measured(rows=16, owners=FOUR)
    asks(engine, "a", "b")
    for node, loss in (("a", 0.01), ("b", 2.0)):
        engine.offer(node, finding(evaluations(engine, node)[0], loss=loss))
    engine.crash()
    (job,) = [job for job in engine.jobs if isinstance(job, effects.Evaluate)]
    engine.answer(job)
    assert losses(engine) == [(0, 2.0, 0)]
    assert len(disputes(engine)) == 1
    asks(engine, "c", "d")
    train_once(engine, "c")
    assert engine.state.newest.version > 0


def test_nodes_of_one_owner_do_not_confirm_each_other() -> None:
    engine = measured(rows=16, owners={"a": "x", "b": "x", "c": "y"})
    asks(engine, "a", "b")
    assert not evaluations(engine, "b")
    engine.hello("c")
    engine.offer("a", finding(evaluations(engine, "a")[0], loss=2.0))
    assert losses(engine) == [], "c could confirm it"
    asks(engine, "b")
    assert not evaluations(engine, "b")
    asks(engine, "c")
    engine.offer("c", finding(evaluations(engine, "c")[0], loss=2.0))
    assert losses(engine) == [(0, 2.0, 0)]


def test_one_owner_alone_is_believed_and_the_ledger_says_so() -> None:
    engine = measured(rows=16, owners={"a": "x", "b": "x"})
    asks(engine, "a", "b")
    engine.offer("a", finding(evaluations(engine, "a")[0], loss=0.01))
    assert losses(engine) == [(0, 0.01, 0)]
    assert owners(engine) == [1]


def test_a_second_owner_that_leaves_is_not_waited_for() -> None:
    engine = measured(rows=16, owners=FOUR)
    asks(engine, "a", "b")
    engine.offer("a", finding(evaluations(engine, "a")[0], loss=2.0))
    assert losses(engine) == []
    engine.leave("b")
    assert losses(engine) == [(0, 2.0, 0)]
    assert owners(engine) == [1]


def test_a_second_owner_that_does_not_ask_leaves_it_to_the_controller() -> None:
    engine = measured(rows=16, owners=FOUR)
    asks(engine, "a")
    engine.hello("b")
    engine.offer("a", finding(evaluations(engine, "a")[0], loss=0.01))
    wait(engine, PATIENCE + 2, "a", "b")
    (job,) = [job for job in engine.jobs if isinstance(job, effects.Evaluate)]
    engine.answer(job)
    assert losses(engine) == [(0, 2.0, 0)]


def test_a_fast_node_takes_no_more_than_another_owner_can_measure() -> None:
    pieces = []
    for owners in (ONE, FOUR):
        engine = measured(rows=100_000, owners=owners, pace="matched", local_steps=10, max_local_steps=10_000)
        for node in ("a", "b", "c"):
            engine.hello(node)
        engine.observed(a=100.0, b=1.0, c=1.0)
        asks(engine, "a")
        pieces += [task.held_out.stop for task in evaluations(engine, "a")]
    alone, beside = pieces
    assert beside <= OVERDUE * engine.machine.parts[Evaluation]._quick(engine.state.nodes["b"]) < alone


def test_a_ledger_of_single_measurements_is_continued() -> None:
    """An older controller gave each piece to one node: those that are measured wait for a second owner."""
    engine = measured(rows=16, owners=FOUR)
    engine.hello("b")
    asks(engine, "a")
    engine.offer("a", finding(evaluations(engine, "a")[0], loss=2.0))
    engine.crash()
    asks(engine, "a", "b")
    assert not evaluations(engine, "a")
    engine.offer("b", finding(evaluations(engine, "b")[0], loss=2.0))
    assert losses(engine) == [(0, 2.0, 0)]
    assert owners(engine) == [2]


def test_a_second_measurement_that_is_lost_goes_to_another_owner_again() -> None:
    engine = measured(rows=16, owners={"a": "x", "b": "y", "c": "z", "d": "x"})
    asks(engine, "a", "b")
    assert evaluations(engine, "b")
    engine.hello("c")
    engine.handle(ev.Lost("b", "killed"))
    asks(engine, "d")
    assert not evaluations(engine, "d"), "its owner has measured it"
    asks(engine, "c")
    for node in ("a", "c"):
        engine.offer(node, finding(evaluations(engine, node)[0], loss=1.5))
    assert losses(engine) == [(0, 1.5, 0)]
    assert owners(engine) == [2]
    assert not engine.state.redo


def test_training_that_is_lost_keeps_no_second_owner_from_measuring() -> None:
    engine = measured(rows=16, owners=FOUR)
    asks(engine, "a")
    engine.hello("d", kinds=("train", "flush"))
    asks(engine, "d")
    engine.handle(ev.Lost("d", "killed"))
    assert engine.state.redo
    engine.hello("b", kinds=("evaluate",))
    asks(engine, "b")
    assert evaluations(engine, "b")


def test_rows_that_two_owners_lost_do_not_both_go_to_one_owner() -> None:
    engine = measured(rows=16, owners={"a": "x", "b": "y", "c": "z", "d": "z"})
    asks(engine, "a", "b")
    assert [len(evaluations(engine, node)) for node in "ab"] == [1, 1]
    engine.crash()  # neither comes back, and both are given up at once
    for node in "cd":
        engine.hello(node, kinds=("evaluate",))
        engine.next(node)
    for engine.now in range(1, 11):
        engine.handle(ev.Tick())
        engine.heartbeat("c")
        engine.heartbeat("d")
    assert [len(evaluations(engine, node)) for node in "cd"] == [1, 0]
    asks(engine, "b")
    for node in "cb":
        engine.offer(node, finding(evaluations(engine, node)[0], loss=1.5))
    assert owners(engine) == [2]


def test_any_node_may_repeat_a_lost_first_measurement() -> None:
    engine = measured(rows=16, owners={"a": "x", "b": "x", "c": "y"})
    asks(engine, "a")
    engine.handle(ev.Lost("a", "killed"))
    asks(engine, "b", "c")
    for node in ("b", "c"):
        engine.offer(node, finding(evaluations(engine, node)[0], loss=1.5))
    assert owners(engine) == [2]
