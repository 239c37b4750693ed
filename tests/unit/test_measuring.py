"""Held-out loss by workers: who measures which rows of which version, and what becomes of a measurement."""

from __future__ import annotations

import math
from typing import Any

import pytest

from barnraise.controller import actions as act
from barnraise.controller import events as ev
from barnraise.controller.measuring import BATCH_ROWS, FORWARD, LONGEST, PATIENCE, TIMES
from barnraise.controller.settings import EvaluationSettings
from barnraise.core.types import Evaluate, Flush, Train
from barnraise.ledger import notes
from barnraise.ledger.decisions import Judged, Noted

from ..state_machine.chances import FLUSH, wrong_kind
from ..state_machine.engine import Engine, answer_to, contribution, engine_settings, finding, on_probation


def measured(rows: int = 40, most_loss: float = math.inf, **changes: Any) -> Engine:
    """A run whose workers measure versions on so many rows."""
    plan = EvaluationSettings(times=4, rows=rows, row_tokens=3, file=2, by_workers=True, most_loss=most_loss)
    return Engine(engine_settings(evaluations=plan, **{"buffer_size": 1} | changes))


def asks(engine: Engine, *nodes: str) -> None:
    for node in nodes:
        if node not in engine.machine.membership.seen:
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
    while jobs := [job for job in engine.jobs if isinstance(job, act.Inspect | act.Aggregate)]:
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


def test_who_would_keep_all_others_waiting_is_not_asked() -> None:
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
    engine.machine.dispatch.asking.update(dict.fromkeys(("a", "b", "c"), 0))
    engine.said |= dict.fromkeys(("a", "b", "c"), 0)
    engine.handle(ev.Tick())
    assert sorted(type(task).__name__ for held in engine.held.values() for task in held.values()) == [
        "Evaluate",
        "Train",
        "Train",
    ]
    assert not engine.machine.dispatch.asking


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
    """The controller measures that version itself: as it is, or, where a model came to nothing, as none."""
    engine = measured(rows=32, most_loss=9.0)
    asks(engine, "a", "b")
    engine.offer("a", finding(evaluations(engine, "a")[0], loss=loss))
    (verdict,) = [d for d in engine.journal if isinstance(d, Judged)]
    assert verdict.verdict == "refused"
    assert "at most 9 is believed" in verdict.reason
    (job,) = [job for job in engine.jobs if isinstance(job, act.Evaluate)]
    for task in evaluations(engine, "b"):
        engine.offer("b", finding(task, loss=2.0))
    assert losses(engine) == []
    engine.answer(job)
    assert [loss for _, loss, _ in losses(engine)] != [loss]
    asks(engine, "a", "b")
    train_once(engine, "b")
    assert not engine.machine.kinds["evaluate"].doubted  # type: ignore[attr-defined]


def test_a_loss_at_the_bound_is_believed() -> None:
    engine = measured(rows=16, most_loss=9.0)
    asks(engine, "a")
    engine.offer("a", finding(evaluations(engine, "a")[0], loss=9.0))
    assert losses(engine) == [(0, 9.0, 0)]


def test_a_loss_that_is_no_number_is_told_as_none() -> None:
    engine = measured(rows=16, most_loss=9.0)
    asks(engine, "a")
    engine.offer("a", finding(evaluations(engine, "a")[0], loss=math.nan))
    (job,) = [job for job in engine.jobs if isinstance(job, act.Evaluate)]
    engine.jobs.remove(job)
    engine.handle(ev.Evaluated(job.epoch, job.version, math.nan))
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
def test_what_cannot_be_is_refused_and_somebody_else_measures_it(changes: dict[str, Any], reason: str) -> None:
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


def test_a_lost_piece_goes_to_who_can_still_reach_the_version() -> None:
    engine = measured(rows=32)
    asks(engine, "a", "b")
    (kept,), (lost,) = evaluations(engine, "a"), evaluations(engine, "b")
    train_once(engine, "a")
    assert engine.state.newest.version == 1
    engine.handle(ev.Lost("b", "killed"))
    engine.hello("far")
    engine.next("far", 1)  # beyond it
    assert not evaluations(engine, "far")
    engine.hello("near")
    engine.next("near", 0)
    (again,) = evaluations(engine, "near")
    assert (again.base, again.held_out, again.news.updates) == (0, lost.held_out, ())
    engine.offer("near", finding(again, loss=1.0))
    engine.offer("a", finding(kept, loss=2.0))
    assert losses(engine) == [(0, 1.5, 0)], "the tokens are those of the version, not of the time"


def test_a_node_that_watches_is_told_of_versions_from_where_it_is() -> None:
    """The version that it was assigned to measure is not the newest: the next news begin there."""
    engine = measured(rows=32)
    asks(engine, "a", "b")
    train_once(engine, "a")
    engine.handle(ev.Lost("b", "killed"))
    engine.hello("c")
    engine.machine.publishing.watching["c"] = 0  # it said so, and was not told yet
    engine.watching.add("c")
    engine.watched["c"] = 0
    engine.next("c", 0)
    assert [task.base for task in evaluations(engine, "c")] == [0]
    assert engine.machine.publishing.watching["c"] == 0


def test_what_nobody_can_reach_the_controller_measures_after_a_while() -> None:
    engine = measured(rows=32)
    asks(engine, "a", "b")
    (kept,) = evaluations(engine, "a")
    train_once(engine, "a")
    engine.handle(ev.Lost("b", "killed"))
    wait(engine, PATIENCE - 2, "a")
    assert not engine.jobs or not any(isinstance(job, act.Evaluate) for job in engine.jobs)
    engine.offer("a", finding(kept))
    wait(engine, PATIENCE + 2, "a")
    (job,) = [job for job in engine.jobs if isinstance(job, act.Evaluate)]
    assert job.version == 1
    engine.answer(job)
    assert losses(engine) == [(1, 2.0, 12)]
    assert not engine.state.record.findings
    assert not [work for work in engine.state.redo.values() if work.kind == "evaluate"]


def beyond_reach(engine: Engine, node: str) -> None:
    """A piece is lost of the version that is measured, the node makes a newer one and asks from there."""
    assert evaluations(engine, "b")
    newest = engine.state.newest.version
    train_once(engine, node)
    assert engine.state.newest.version == newest + 1
    engine.handle(ev.Lost("b", "killed"))
    for task in evaluations(engine, node):
        engine.offer(node, finding(task))
    engine.next(node, newest + 1)


def test_what_nobody_can_reach_is_given_up_for_the_newest_version() -> None:
    engine = measured(rows=32)
    asks(engine, "a", "b")
    beyond_reach(engine, "a")
    (first,) = evaluations(engine, "a")
    assert (first.base, first.held_out.start) == (1, 0)
    engine.offer("a", finding(first))
    engine.next("a", 1)
    (second,) = evaluations(engine, "a")
    engine.offer("a", finding(second, loss=4.0))
    ((version, loss, tokens),) = losses(engine)
    assert (version, tokens) == (1, 12)
    assert loss is not None
    assert 2.0 < loss < 4.0
    assert not engine.jobs
    assert not engine.state.record.findings
    assert not [work for work in engine.state.redo.values() if work.kind == "evaluate"]


def test_a_version_is_not_given_up_while_somebody_may_reach_it() -> None:
    engine = measured(rows=32)
    engine.hello("c")  # and does not ask
    asks(engine, "a", "b")
    beyond_reach(engine, "a")
    assert not evaluations(engine, "a")
    engine.next("c", 0)
    assert [task.base for task in evaluations(engine, "c")] == [0]


def test_who_cannot_measure_is_not_waited_for() -> None:
    engine = measured(rows=32)
    engine.hello("c", kinds=("train", "flush"))
    asks(engine, "a", "b")
    beyond_reach(engine, "a")
    assert [task.base for task in evaluations(engine, "a")] == [1]


def test_workers_begin_with_a_few_versions_only() -> None:
    engine = measured(rows=32)
    asks(engine, "a", "b")
    for begun in range(1, TIMES):
        beyond_reach(engine, "a")
        assert [task.base for task in evaluations(engine, "a")] == [begun]
        asks(engine, "b")
    beyond_reach(engine, "a")
    assert not evaluations(engine, "a")
    wait(engine, PATIENCE + 2, "a")
    assert [type(job) for job in engine.jobs] == [act.Evaluate]


def test_a_finding_that_comes_too_late_is_discarded_with_a_reason() -> None:
    engine = measured(rows=16)
    asks(engine, "a")
    (piece,) = evaluations(engine, "a")
    wait(engine, LONGEST + 2 * PATIENCE, "a")
    engine.offer("a", finding(piece))
    (verdict,) = (d for d in engine.journal if isinstance(d, Judged))
    assert (verdict.verdict, verdict.reason) == ("discarded", "nobody waits for this measurement any more")


def test_a_node_that_lives_is_waited_for_but_not_for_ever() -> None:
    engine = measured(rows=16)
    asks(engine, "a")
    wait(engine, LONGEST - 2, "a")
    assert not engine.jobs
    wait(engine, PATIENCE + 4, "a")
    assert [type(job) for job in engine.jobs] == [act.Evaluate]


def test_what_is_lost_of_a_version_that_has_its_loss_is_not_done_again() -> None:
    engine = measured(rows=16)
    asks(engine, "a", "b")
    wait(engine, LONGEST + 2 * PATIENCE, "a", "b")
    engine.answer(engine.jobs[0])
    engine.leave("a")
    assert not [work for work in engine.state.redo.values() if work.kind == "evaluate"]


def test_a_measurement_goes_on_after_a_restart() -> None:
    engine = measured(rows=32)
    asks(engine, "a", "b")
    (first,), (second,) = evaluations(engine, "a"), evaluations(engine, "b")
    engine.offer("a", finding(first, loss=1.0))
    engine.crash()
    assert engine.machine.measuring.version == 0
    engine.hello("b")
    engine.offer("b", finding(second, loss=2.0))
    assert losses(engine) == [(0, 1.5, 0)]


def test_a_measurement_that_nobody_goes_on_with_after_a_restart_is_the_controllers() -> None:
    engine = measured(rows=32)
    asks(engine, "a", "b")
    engine.crash()
    asks(engine, "c")
    wait(engine, PATIENCE + 20, "c")
    assert [type(job) for job in engine.jobs] == [act.Evaluate]


def test_the_last_version_is_measured_before_nodes_are_dismissed() -> None:
    engine = measured(rows=16, tokens=12)
    asks(engine, "a")
    engine.offer("a", finding(evaluations(engine, "a")[0]))
    train_once(engine, "a")
    while jobs := [job for job in engine.jobs if not isinstance(job, act.Evaluate)]:
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


def test_at_the_end_nobody_is_waited_for_who_is_gone() -> None:
    engine = measured(rows=16, tokens=12)
    asks(engine, "a")
    engine.offer("a", finding(evaluations(engine, "a")[0]))
    train_once(engine, "a")
    engine.leave("a")
    assert [job.version for job in engine.jobs if isinstance(job, act.Evaluate)] == [1]


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
    engine.machine.publishing.told["a"] = 1
    engine.told["a"] = 1
    train_once(engine, "b")
    assert "a" not in engine.machine.publishing.told


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


def test_who_measures_goes_on_with_the_version_though_it_was_told_of_later_ones() -> None:
    """Else a version that others have left behind would lack the rest of its rows."""
    engine = measured(rows=32)
    engine.hello("b", kinds=("train", "flush"))
    asks(engine, "a")
    engine.watch("a", 0)
    train_once(engine, "b")
    assert engine.told["a"] == 1
    engine.next("a", 0)
    first, second = evaluations(engine, "a")
    assert (first.base, second.base, second.news.updates) == (0, 0, ())
    for piece in (first, second):
        engine.offer("a", finding(piece, loss=1.5))
    assert losses(engine) == [(0, 1.5, 0)]


def test_who_is_on_probation_measures_only_where_nobody_else_can() -> None:
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
