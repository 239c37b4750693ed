"""When a buffer closes, how many nodes that takes, and how a run ends."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import asdict

from barnraise.controller.fleet.speeds import Speeds
from barnraise.controller.state import actions as act
from barnraise.controller.state import effects
from barnraise.controller.state import events as ev
from barnraise.controller.state.settings import DISK_PATIENCE
from barnraise.controller.versions.buffer import Buffer
from barnraise.controller.versions.publishing import Publishing
from barnraise.core.types import LinkReport, ParameterRange
from barnraise.ledger.decisions import Decision, Judged, Noted, VersionClosed
from barnraise.staleness import create as staleness

from ....state_machine.engine import Engine, contribution, engine_settings, on_probation


def run(*nodes: str, **changes: Any) -> Engine:
    """A run in which `nodes` have a task each, and nothing else is under way."""
    engine = Engine(engine_settings(**changes))
    for node in nodes:
        engine.hello(node)
    for node in nodes:
        engine.next(node)
    settle(engine)
    return engine


def settle(engine: Engine) -> None:
    while engine.jobs and engine.finished is None:
        engine.answer(engine.jobs[0])


def hand_in(engine: Engine, node: str, *, good: bool = True) -> None:
    """The node's oldest task, inspected, but nothing that follows from it."""
    engine.offer(node, contribution(next(iter(engine.held[node].values()))))
    for job in list(engine.jobs):
        if isinstance(job, effects.Inspect):
            engine.answer(job, good=good)


def last(engine: Engine, kind: type[Decision]) -> Any:
    return [decision for decision in engine.journal if isinstance(decision, kind)][-1]


def notes(engine: Engine, kind: str) -> list[dict[str, Any]]:
    return [asdict(d.note) for d in engine.journal if isinstance(d, Noted) and d.kind == kind]


def test_a_buffer_closes_at_k_distinct_nodes() -> None:
    engine = run("a", "b", "c", buffer_size=2)
    hand_in(engine, "a")
    engine.next("a")
    hand_in(engine, "a")  # the same slot
    assert engine.state.closing is None
    hand_in(engine, "c")
    closed = last(engine, VersionClosed)
    assert (closed.num_nodes, closed.reason, len(closed.contributions)) == (2, "full", 3)


@pytest.mark.parametrize(("by_range", "contributions"), [(False, 3), (True, 4)])
def test_a_buffer_closes_at_k_nodes_of_each_range_where_nodes_have_ranges_of_their_own(
    by_range: bool, contributions: int
) -> None:
    halves = (ParameterRange(0, 50), ParameterRange(50, 100))
    engine = run("a", "b", "c", buffer_size=2, partitions=(halves,), by_range=by_range)
    for node in ("a", "a", "b", "b"):  # the first half, then the second
        hand_in(engine, node)
        if engine.state.closing is not None:
            break
        engine.next(node)
    closed = last(engine, VersionClosed)
    assert (closed.num_nodes, closed.reason, len(closed.contributions)) == (2, "full", contributions)


def test_a_version_is_refused_when_one_range_keeps_too_few_nodes_of_its_own() -> None:
    halves = (ParameterRange(0, 50), ParameterRange(50, 100))
    engine = run("a", "b", minimum_nodes=2, partitions=(halves,), by_range=True)
    for node in ("a", "a", "b", "b"):
        hand_in(engine, node)
        if engine.state.closing is None:
            engine.next(node)
    [job] = [job for job in engine.jobs if isinstance(job, effects.Aggregate)]
    assert [(slot.node, slot.parameters) for slot in job.slots] == [
        (node, tuple(half)) for node in ("a", "b") for half in halves
    ]
    [held] = job.slots[-1].contributions
    engine.jobs.remove(job)
    engine.handle(effects.Unmade(job.epoch, job.version, {held.assignment: "cannot be decoded"}, {}))
    [refused] = notes(engine, "version_refused")
    assert refused["reason"] == "1 nodes' contributions can be used, but the aggregation rule needs 2"


def test_an_explicit_k_above_the_living_is_lowered_with_an_event() -> None:
    engine = run("a", "b", buffer_size=5)
    assert [d["nodes"] for d in notes(engine, "buffer_size")] == [1, 2]
    assert notes(engine, "buffer_size")[-1]["why"] == "aggregation.buffer_size is 5"


def test_below_the_rules_minimum_the_run_pauses_and_says_so() -> None:
    engine = run("a", "b", "c", minimum_nodes=3)
    assert engine.state.buffer.size == 3
    engine.leave("b")
    assert engine.state.progress.paused == "2 live nodes, but the aggregation rule needs 3"
    assert engine.state.buffer.size == 3
    engine.hello("d")
    assert not engine.state.progress.paused
    assert [len(notes(engine, kind)) for kind in ("paused", "continued")] == [2, 2]  # at first there was but one


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ([100.0] * 4, 2),  # 2 * 400 / (100 * 5)
        ([100.0, 100.0, 10.0], 3),  # the slow one needs 2 * 210 / (10 * 5) = 8.4: all of them
        ([100.0], 1),
    ],
)
def test_an_automatic_k_keeps_staleness_within_half_the_bounds(rates: list[float], expected: int) -> None:
    engine = Engine(engine_settings(staleness=staleness("fixed", max_staleness=5)))
    for index, rate in enumerate(rates):
        engine.hello(f"n{index}")
        engine.observed(**{f"n{index}": rate})
    engine.handle(ev.Tick())
    assert engine.state.buffer.size == expected


@pytest.mark.parametrize(
    ("slow", "down", "expected"),
    [
        (0, 100.0, 1),
        (2, 100.0, 1),  # a few do not slow all others' versions, whatever they say
        (4, 2500.0, 4),  # 10 contributions a second, of 500 bytes a version: half of the line is 2.5 versions a second
        (4, 100.0, 6),  # half of all, at most
    ],
)
def test_an_automatic_k_leaves_lines_room(slow: int, down: float, expected: int) -> None:
    engine = Engine(engine_settings(staleness=staleness("fixed", max_staleness=1000)))
    names = [f"n{index}" for index in range(12)]
    for index, name in enumerate(names):
        engine.hello(name)
        engine.next(name, link=LinkReport(down=down if index < slow else 0.0))  # not measured yet
    engine.observed(**dict.fromkeys(names, 100.0))
    for name in names:
        engine.state.nodes[name].speed.tokens = engine.shadow.nodes[name].speed.tokens = 120.0
    engine.machine.parts[Speeds].news += 12
    engine.handle(ev.Tick())
    assert engine.state.buffer.size == expected


def unequal(**changes: Any) -> Engine:
    """Two nodes that have contributed twice, one 100 times faster, neither to be staler than 3."""
    engine = run("a", "b", staleness=staleness("fixed", max_staleness=3), **changes)
    for node in ("a", "b", "a", "b"):
        hand_in(engine, node)
        settle(engine)
        engine.next(node)
    engine.observed(a=100.0, b=1.0)
    engine.journal.clear()
    engine.machine.parts[Buffer].advised = False  # forget the earlier advice
    for _ in range(3):
        engine.machine.parts[Speeds].news += 2
        engine.handle(ev.Tick())
    return engine


def test_a_pinned_k_that_is_too_small_is_said_once() -> None:
    (said,) = notes(unequal(buffer_size=1), "advice")
    assert "set aggregation.buffer_size, which is 1, to 34 or more, or to auto" in said["reason"]  # 101 / (1 * 3)


@pytest.mark.parametrize("changes", [{"buffer_size": 34}, {"buffer_size": None}])
def test_a_k_that_is_large_enough_is_not_spoken_of(changes: dict[str, Any]) -> None:
    assert not notes(unequal(**changes), "advice")


@pytest.mark.parametrize(("weighting", "left"), [("constant", 1.0), ("inverse_sqrt", 0.5)])
def test_a_version_of_one_stale_contribution_moves_less(weighting: str, left: float) -> None:
    """The mean of one update does not see its weight: the version's rate does."""
    engine = run("a", "b", buffer_size=1, staleness=staleness("fixed", max_staleness=5, weighting=weighting))
    hand_in(engine, "a")
    settle(engine)
    assert last(engine, VersionClosed).rate == 0.5  # the share of one of two
    hand_in(engine, "b")  # its base is a version behind
    assert last(engine, Judged).staleness == 1
    assert last(engine, VersionClosed).rate == 0.5 * left


def test_staleness_leaves_what_fedbuff_says() -> None:
    """The mean of the weighted, times what is left of the weights in all: each update by its own factor."""
    weighting = staleness("fixed", max_staleness=5, weighting="inverse_sqrt")
    settings = engine_settings(buffer_size=1, staleness=weighting)
    engine = Engine(settings)
    for node in ("a", "b"):
        engine.hello(node)
        engine.next(node)
    hand_in(engine, "a")
    settle(engine)  # b's task is stale by one
    engine.hello("c")
    for node in ("a", "c"):
        engine.next(node)
    engine.machine.parts[Buffer].versions = replace(settings.versions, buffer_size=2)
    engine.handle(ev.Tick())
    hand_in(engine, "b")
    hand_in(engine, "c")
    (closing,) = [job for job in engine.jobs if isinstance(job, effects.Aggregate)]
    weights = [sum(held.weight for held in slot.contributions) for slot in closing.slots]
    assert weights == [6.0, 12.0]
    assert [slot.freshness for slot in closing.slots] == [0.5, 1.0]
    assert closing.rate == pytest.approx(2 / 3 * 18 / 24)  # two of three nodes, and what is left of their 24 tokens


def test_a_less_trusted_node_moves_a_version_less_and_does_not_slow_others() -> None:
    """Trust is no staleness: what the others bring moves the model as far as ever."""
    settings = engine_settings(buffer_size=2, staleness=staleness("fixed", max_staleness=5, weighting="inverse_sqrt"))
    engine = Engine(settings)
    for node in ("a", "b"):
        engine.hello(node)
    on_probation(engine, "b")
    trust = engine.state.nodes["b"].tally.reputation.weight()
    for node in ("a", "b"):
        engine.next(node)
        hand_in(engine, node)
    (closing,) = [job for job in engine.jobs if isinstance(job, effects.Aggregate)]
    assert 0.0 < trust < 0.5
    assert [slot.trust for slot in closing.slots] == [1.0, trust]
    assert [slot.freshness for slot in closing.slots] == [1.0, 1.0]
    assert [slot.weight for slot in closing.slots] == [12.0, trust * 12.0]
    assert closing.rate == pytest.approx((1.0 + trust) / 2)  # each half of the work, as far as it is trusted


def test_the_rate_of_a_node_survives_an_outage() -> None:
    """Two contributions that come at once after a long silence are no proof of speed."""
    engine = run("a", tokens=10**6)
    for _ in range(20):
        engine.next("a")
        engine.now += 1.0
        hand_in(engine, "a")
        settle(engine)
    assert engine.state.nodes["a"].speed.rate == pytest.approx(12.0, rel=0.05)
    engine.next("a")
    engine.next("a")
    engine.now += 2.0
    hand_in(engine, "a")
    engine.now += 1e-6
    hand_in(engine, "a")
    settle(engine)
    assert 9.0 < engine.state.nodes["a"].speed.rate < 15.0


def test_a_synchronous_round_closes_when_all_working_nodes_have_contributed() -> None:
    engine = run("a", "b", asynchronous=False)
    engine.hello("c")  # lives, but does not work
    hand_in(engine, "a")
    assert engine.state.closing is None
    hand_in(engine, "b")
    assert last(engine, VersionClosed).reason == "all"


def test_a_synchronous_round_waits_for_the_window_once_half_have_contributed() -> None:
    engine = run("a", "b", "c", asynchronous=False)
    engine.now = 1.0
    hand_in(engine, "a")
    assert engine.machine.deadline == 5.0  # a lease; half have not contributed yet
    hand_in(engine, "b")
    assert engine.machine.deadline == 1.0 + 1.0  # to see whether c is late; its speed is unknown
    engine.tick(1.0)
    assert engine.machine.deadline == 1.0 + 2.0
    for node in "abc":
        engine.heartbeat(node)
    engine.tick(1.0 - 1e-9)
    assert engine.state.closing is None
    engine.now = 3.0
    engine.tick(0.0)
    assert last(engine, VersionClosed).reason == "window"


def test_a_synchronous_round_waits_no_longer_than_the_longest_wait() -> None:
    engine = run("a", "b", "c", asynchronous=False)
    hand_in(engine, "a")
    for _ in range(8):
        assert engine.state.closing is None
        for node in "abc":
            engine.heartbeat(node)
        engine.tick(1.0)
    assert last(engine, VersionClosed).reason == "longest wait"


@pytest.mark.parametrize("start", [0.1, 0.7, 1e6 + 0.1, 123456.789])
def test_a_deadline_that_is_reached_is_over(start: float) -> None:
    """Rounding must not leave a deadline in the past that no tick moves."""
    engine = run("a", "b", "c", asynchronous=False, sync_longest_wait=0.1, sync_window=0.3)
    engine.state.newest.time = engine.shadow.newest.time = start
    engine.now = start
    hand_in(engine, "a")
    engine.now = engine.machine.deadline
    engine.tick(0.0)
    assert engine.state.closing is not None


def test_too_few_nodes_for_the_rule_set_no_deadline() -> None:
    engine = run("a", "b", "c", asynchronous=False, minimum_nodes=3, lease=1000.0)
    hand_in(engine, "a")
    engine.tick(500.0)
    assert engine.machine.deadline == 1000.0
    hand_in(engine, "b")
    hand_in(engine, "c")
    assert engine.state.closing is not None


@pytest.mark.parametrize("under_way", [effects.Aggregate, effects.Inspect])
def test_actions_under_way_at_the_end_of_a_run_set_no_deadline(under_way: type[act.Action]) -> None:
    """The wait for residuals has an end.

    Events tell when a version is made or a payload is inspected: a deadline that has passed meanwhile would keep the
    shell busy for nothing.
    """
    engine = run("a", tokens=24, flush=True, last=420)
    hand_in(engine, "a")
    settle(engine)
    engine.next("a")
    hand_in(engine, "a")
    if under_way is effects.Inspect:
        settle(engine)
        engine.offer("a", contribution(next(iter(engine.held["a"].values())), steps=0))
    assert engine.state.progress.flushing is not None
    assert any(isinstance(job, under_way) for job in engine.jobs)
    engine.tick(engine.settings.flush_patience + 1.0)  # no deadline that has passed is left
    settle(engine)
    assert engine.machine.deadline > engine.now


def test_a_closed_synchronous_round_takes_no_more_and_gives_no_more_work() -> None:
    engine = run("a", "b", "c", asynchronous=False, lease=100.0)
    hand_in(engine, "a")
    hand_in(engine, "b")
    engine.tick(8.0)
    assert engine.state.closing is not None
    engine.next("a")
    hand_in(engine, "c")
    verdict = last(engine, Judged)
    assert (verdict.node, verdict.verdict) == ("c", "refused")
    assert verdict.reason.startswith("stale")
    assert engine.state.works == {}
    settle(engine)
    assert [work.base for work in engine.state.works.values()] == [1]


def test_an_arrived_contribution_belongs_to_the_synchronous_round() -> None:
    engine = run("a", "b", asynchronous=False, lease=100.0)
    hand_in(engine, "a")
    engine.offer("b", contribution(next(iter(engine.held["b"].values()))))
    engine.tick(9.0)
    assert engine.state.closing is None
    assert engine.machine.deadline == 100.0
    settle(engine)
    assert last(engine, VersionClosed).num_nodes == 2


def test_the_budget_ends_a_run_with_the_next_close() -> None:
    engine = run("a", "b", tokens=12, buffer_size=2)
    hand_in(engine, "a")
    assert last(engine, VersionClosed).reason == "last"
    assert engine.state.progress.final
    hand_in(engine, "b")
    assert last(engine, Judged).verdict == "discarded"
    settle(engine)
    assert engine.finished == act.Finish("the token budget is met")
    assert (engine.state.totals.tokens, engine.state.totals.discarded) == (12, 1)


def test_a_stop_closes_what_there_is() -> None:
    engine = run("a", "b", buffer_size=2)
    hand_in(engine, "a")
    engine.handle(ev.StopRequested("SIGINT"))
    settle(engine)
    assert (engine.state.newest.version, engine.finished) == (1, act.Finish("SIGINT"))


def test_an_interruption_saves_the_newest_version_and_leaves_the_run_open() -> None:
    engine = run("a", "b", buffer_size=2)
    hand_in(engine, "a")
    hand_in(engine, "b")  # version 1 is being made
    engine.handle(ev.InterruptRequested("SIGINT"))
    engine.next("a")
    hand_in(engine, "a")
    settle(engine)
    assert engine.finished == act.Finish("SIGINT", interrupted=True)
    assert (engine.state.record.checkpoint, engine.state.newest.version, engine.state.progress.finished) == (1, 1, "")
    engine.crash()
    engine.finish()
    assert engine.state.totals.tokens >= engine.settings.tokens


def test_an_interruption_closes_no_version() -> None:
    engine = run("a", "b", buffer_size=1)
    engine.handle(ev.InterruptRequested("SIGINT"))
    hand_in(engine, "a")
    settle(engine)
    assert (engine.state.newest.version, engine.state.totals.accepted) == (0, 1)
    assert engine.finished == act.Finish("SIGINT", interrupted=True)


def test_an_interruption_whose_checkpoint_fails_says_so_and_can_be_resumed() -> None:
    engine = run("a")
    hand_in(engine, "a")
    settle(engine)
    engine.handle(ev.InterruptRequested("SIGINT"))
    engine.answer(next(job for job in engine.jobs if isinstance(job, effects.Checkpoint)), good=False)
    assert engine.finished == act.Finish("the checkpoint failed: disk full", failed=True)
    engine.crash()
    engine.finish()


def test_a_run_that_cannot_continue_ends_as_failed() -> None:
    engine = run("a")
    engine.handle(ev.InterruptRequested("no worker is left", failed=True))
    settle(engine)
    assert engine.finished == act.Finish("no worker is left", failed=True)


def test_a_stop_leaves_over_what_the_rule_cannot_use() -> None:
    engine = run("a", "b", minimum_nodes=2)
    hand_in(engine, "a")
    engine.offer("b", contribution(next(iter(engine.held["b"].values()))))
    engine.handle(ev.StopRequested("SIGINT"))
    assert not engine.state.progress.final  # one is being inspected: it may make up the number
    for job in list(engine.jobs):
        engine.answer(job, good=False)
    settle(engine)
    assert notes(engine, "left_over") == [{"contributions": 1, "reason": "SIGINT"}]
    assert (engine.state.totals.accepted, engine.state.totals.discarded, engine.state.newest.version) == (0, 1, 0)
    assert engine.finished == act.Finish("SIGINT")


def fail_checkpoints(engine: Engine, seconds: float) -> list[float]:
    """The disk takes no checkpoint for so long; returns when one was tried."""
    begun, tried = engine.now, list[float]()
    while engine.finished is None and engine.now <= begun + seconds:
        for job in list(engine.jobs):
            tried += [engine.now] * isinstance(job, effects.Checkpoint)
            engine.answer(job, good=not isinstance(job, effects.Checkpoint))
        engine.now += 1.0
        engine.handle(ev.Tick())
    return tried


def test_a_last_checkpoint_that_fails_is_tried_again() -> None:
    engine = run("a", tokens=12, checkpoint_seconds=1e3)
    hand_in(engine, "a")
    tried = fail_checkpoints(engine, 20.0)
    assert [later - tried[0] for later in tried] == [0.0, 2.0, 6.0, 14.0]
    engine.now = tried[-1] + DISK_PATIENCE / 4
    settle(engine)
    engine.handle(ev.Tick())
    settle(engine)
    assert engine.finished == act.Finish("the token budget is met")


def test_a_run_whose_last_checkpoint_keeps_failing_can_be_resumed() -> None:
    engine = run("a", tokens=12)
    hand_in(engine, "a")
    tried = fail_checkpoints(engine, math.inf)
    assert tried[-2] < tried[0] + DISK_PATIENCE <= tried[-1]
    assert engine.finished == act.Finish("disk full", failed=True)
    engine.crash()
    settle(engine)
    assert engine.finished == act.Finish("the token budget is met")


def test_no_checkpoint_is_begun_after_the_last_that_failed() -> None:
    engine = run("a", tokens=12)
    hand_in(engine, "a")
    fail_checkpoints(engine, math.inf)
    assert engine.finished == act.Finish("disk full", failed=True)
    engine.now += DISK_PATIENCE
    engine.handle(ev.Tick())  # messages of the meantime are still handled
    engine.handle(ev.InterruptRequested("SIGINT"))
    assert engine.jobs == []


def test_a_process_that_is_told_to_end_does_not_wait_for_the_last_checkpoint() -> None:
    engine = run("a", tokens=12)
    hand_in(engine, "a")
    fail_checkpoints(engine, 10.0)
    engine.handle(ev.InterruptRequested("SIGINT"))
    engine.answer(engine.jobs[0], good=False)
    assert engine.finished is not None
    assert engine.finished.failed


def test_an_older_checkpoint_that_fails_late_does_not_end_the_run() -> None:
    engine = run("a", tokens=24)
    engine.now = 4.0
    engine.heartbeat("a")
    hand_in(engine, "a")
    settle_but_checkpoint(engine)
    assert [type(job) for job in engine.jobs] == [effects.Checkpoint]  # the checkpoint of version 1
    engine.next("a")
    hand_in(engine, "a")
    assert engine.state.progress.final
    engine.jobs.remove(next(job for job in engine.jobs if isinstance(job, effects.Checkpoint)))
    engine.handle(effects.Checkpointed(1, 1, "disk full"))
    assert engine.finished is None
    settle(engine)
    assert engine.finished == act.Finish("the token budget is met")


def test_an_older_checkpoint_that_fails_after_the_last_version_does_not_hold_up_the_end() -> None:
    engine = run("a", tokens=24, checkpoint_seconds=3.0)
    engine.now = 4.0
    engine.heartbeat("a")
    hand_in(engine, "a")
    settle_but_checkpoint(engine)
    engine.next("a")
    hand_in(engine, "a")
    settle_but_checkpoint(engine)  # the last version is there, and measured
    assert [type(job) for job in engine.jobs] == [effects.Checkpoint]  # the checkpoint of version 1
    engine.jobs.clear()
    engine.handle(effects.Checkpointed(engine.epoch, 1, "disk full"))
    settle(engine)
    assert engine.finished == act.Finish("the token budget is met")


def settle_but_checkpoint(engine: Engine) -> None:
    while jobs := [job for job in engine.jobs if not isinstance(job, effects.Checkpoint)]:
        engine.answer(jobs[0])


def test_a_finished_run_that_is_resumed_is_finished() -> None:
    engine = run("a", tokens=12)
    hand_in(engine, "a")
    settle(engine)
    journal = len(engine.journal)
    engine.crash()
    assert engine.finished == act.Finish("the token budget is met")
    assert len(engine.journal) == journal


def test_no_sizing_after_the_end() -> None:
    engine = run("a", "b", tokens=12, minimum_nodes=1)
    hand_in(engine, "a")
    before = len(notes(engine, "buffer_size"))
    engine.leave("b")
    engine.leave("a")
    assert len(notes(engine, "buffer_size")) == before
    assert notes(engine, "paused") == []


def test_evaluations_and_checkpoints_come_at_their_times() -> None:
    engine = run("a", tokens=120, times=5, checkpoint_seconds=2.5)
    while engine.finished is None:
        engine.now += 1.0
        engine.next("a")
        hand_in(engine, "a")
        settle(engine)
    assert [version for version, _ in engine.state.record.evaluations] == [0, 2, 4, 6, 8, 10]
    assert [d["version"] for d in notes(engine, "checkpointed")] == [3, 6, 9, 10]


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_no_number_after_a_replay_too(loss: float) -> None:
    engine = run("a")
    engine.handle(effects.Evaluated(1, 0, loss))
    engine.crash()
    assert math.isnan(engine.state.record.evaluations[-1][1])


def test_blobs_of_old_deltas_are_released_but_not_one_that_a_newer_version_shares() -> None:
    engine = run("a", exchanged=50, tokens=10**6)  # room for two deltas of 90 bytes
    for _ in range(6):
        engine.next("a")
        hand_in(engine, "a")
        settle(engine)
    kept = {update.blob.digest for update in engine.machine.parts[Publishing].updates.values()}
    assert engine.deltas == kept
    assert len(engine.machine.parts[Publishing].updates) == 2


def test_lines_are_no_reason_to_say_that_work_is_stale() -> None:
    """A pinned K below the one that links would need is no wrong estimate of speeds."""
    names = [f"n{index}" for index in range(12)]
    engine = Engine(engine_settings(buffer_size=2, tokens=10**9, staleness=staleness("fixed", max_staleness=50)))
    for name in names:
        engine.hello(name)
    for _ in range(6):
        for name in names:
            engine.next(name, link=LinkReport(0.01, 1e6, 100.0))
        settle(engine)
        engine.tick(0.5)
        for name in names:
            hand_in(engine, name)
            settle(engine)
    assert engine.machine.parts[Buffer].automatic_size == 6
    assert notes(engine, "advice") == []


@pytest.mark.parametrize(("nodes", "late", "expected"), [(5, 1, 2), (5, 2, 20), (3, 1, 12)])
def test_one_late_node_does_not_enlarge_the_buffer(nodes: int, late: int, expected: int) -> None:
    """It may mean to; two of them are how the fleet is."""
    engine = Engine(engine_settings(tokens=10**6, staleness=staleness("fixed", max_staleness=5)))
    names = [f"n{index}" for index in range(nodes)]
    for name in names:
        engine.hello(name)
    engine.observed(**dict.fromkeys(names, 100.0))
    for name in names[:late]:
        for state in (engine.state, engine.shadow):
            state.nodes[name].speed.turnaround *= 10.0
    engine.handle(ev.Tick())
    assert engine.machine.parts[Buffer].fresh_size == expected
