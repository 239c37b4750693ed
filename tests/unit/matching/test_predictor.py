"""Predictions of task durations from past durations: liars, outliers, lengths, links, and the outcome."""

from __future__ import annotations

import math
import random
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnraise.account.folded import Foreseen
from barnraise.account.hindsight import LEARNING, Hindsight, RunningMedian
from barnraise.account.reducer import RowFeed
from barnraise.controller.fleet.cost_model import CostModel
from barnraise.controller.state import events as ev
from barnraise.controller.state.fold import apply
from barnraise.controller.state.state import State
from barnraise.core.types import Blob, NodeProfile
from barnraise.ledger import Assigned, Decision, Judged, Ledger, LedgerView, NodeChanged, Noted
from barnraise.ledger.notes import Released
from barnraise.matching.predictor import MOST_AT_ONCE, REMEMBERED, UNKNOWN_SPREAD, Learned, Times, sort_of
from barnraise.wire.messages import Offer

from ... import decisions as some
from ...state_machine.engine import Engine, contribution, digest, engine_settings


def known(*seconds: float, work: float = 100.0) -> Learned:
    learned = Learned()
    for each in seconds:
        learned.finished("train 1", work, each)
    return learned


def test_one_outlier_moves_little() -> None:
    steady, odd = known(*[2.0] * 6), known(2.0, 2.0, 200.0, 2.0, 2.0, 2.0)
    assert odd.compute("train 1", 100.0) == pytest.approx(steady.compute("train 1", 100.0), rel=0.02)
    assert known(200.0, 2.0, 2.0).compute("train 1", 100.0) == pytest.approx(2.0, rel=0.02), "the first one too"


def test_a_lasting_change_is_taken_in() -> None:
    learned = known(*[2.0] * 20, *[6.0] * REMEMBERED)
    assert learned.compute("train 1", 100.0) == pytest.approx(6.0, rel=0.1)
    assert known(*[2.0] * 20, *[0.1] * REMEMBERED).compute("train 1", 100.0) == pytest.approx(0.1)


def test_results_withheld_and_sent_together_do_not_raise_a_nodes_speed() -> None:
    honest = known(*[2.0] * 24)
    for at_once in (2, 3, MOST_AT_ONCE):
        liar, now = Learned(), 0.0
        for _ in range(24 // at_once):
            for number in range(at_once):  # requested as the one before is computed, submitted with the others
                liar.observed("train 1", 100.0, Times(), now + 2.0 * number, now + 2.0 * at_once + 1e-6 * number)
            now += 2.0 * at_once
        assert liar.compute("train 1", 100.0) >= 0.95 * honest.compute("train 1", 100.0)


def test_lengths_are_told_apart_and_few_tasks_of_one_are_doubted() -> None:
    learned = Learned()
    slower = {"short": 1.0, "middle": 1.3, "long": 2.0}
    for _ in range(12):
        for name, factor in slower.items():
            learned.finished(name, 100.0, 2.0 * factor)
    found = {name: learned.compute(name, 100.0) for name in slower}
    assert found["short"] < found["middle"] < found["long"]
    assert found["long"] / found["short"] == pytest.approx(2.0, rel=0.25)
    once = known(*[2.0] * 8)
    once.finished("rare", 100.0, 8.0)
    assert 2.0 < once.compute("rare", 100.0) < 4.0


def test_the_same_tasks_make_the_same_predictor() -> None:
    chance = random.Random(7)
    seconds = [math.exp(chance.gauss(0.0, 0.3)) for _ in range(50)]
    assert known(*seconds) == known(*seconds)
    assert known(*seconds).spread == pytest.approx(0.3, abs=0.2)


def test_how_far_a_task_may_be_off_is_told_with_it() -> None:
    """About two of three are within the deviation that was expected, whatever their noise; and few tasks say little."""
    chance = random.Random(3)
    for noise in (0.05, 0.2, 0.5):
        learned, off = Learned(), []
        for _ in range(600):
            spread, expected = learned.compute_spread("train 1"), learned.compute("train 1", 100.0)
            seconds = 2.0 * math.exp(chance.gauss(0.0, noise))
            if expected:
                off.append(abs(math.log(seconds / expected)) <= spread)
            learned.finished("train 1", 100.0, seconds)
        assert 0.58 <= sum(off[10:]) / len(off[10:]) <= 0.76
        assert learned.compute_spread("train 1") < learned.compute_spread("never seen")
    assert Learned().compute_spread("train 1") > known(2.0).compute_spread("train 1") > 0.5
    assert known(*[2.0] * 8).compute_spread("train 1") < 0.15


def test_a_links_uncertainty_counts_where_a_task_waits_for_its_bytes() -> None:
    times = Times(compute=4.0, fetch=3.0, send=1.0, compute_spread=0.1, link_spread=0.5)
    assert times.deviation(given=10.0, free=20.0) == pytest.approx(math.hypot(0.4, 0.5)), "fetched while it computes"
    assert times.deviation(given=10.0, free=0.0) == pytest.approx(math.hypot(0.4, 2.0))


def test_fetch_times_correct_the_figures_of_a_link() -> None:
    """A link that is four times slower than it says: told by tasks that wait for their bytes, and not by the others."""
    learned, now = Learned(), 0.0
    assert learned.link_spread == UNKNOWN_SPREAD
    for number in range(12):
        fetch = learned.fetch(10.0) if number % 2 else 0.0
        times = Times(learned.compute("a", 100.0), fetch, 0.5)
        done = now + (40.0 if number % 2 else 0.0) + 2.0 + 0.5
        learned.observed("a", 100.0, times, now, done)
        now = done
    assert learned.fetch(10.0) == pytest.approx(40.0, rel=0.1)
    assert learned.link_spread < 0.1, "always as much slower"
    assert learned.compute("a", 100.0) == pytest.approx(2.0, rel=0.1)


def test_a_task_is_fetched_while_the_one_before_is_computed() -> None:
    times = Times(compute=4.0, fetch=3.0, send=1.0)
    assert times.end(given=10.0, free=0.0) == 18.0
    assert times.end(given=10.0, free=12.0) == 18.0
    assert times.end(given=10.0, free=20.0) == 25.0
    for free in (0.0, 12.0, 20.0):
        assert times.computed(10.0, free, times.end(10.0, free)) == pytest.approx(4.0)


def test_sorts_are_kinds_and_sizes_of_steps() -> None:
    assert sort_of("train", 2048 * 20, 20) == sort_of("train", 2048 * 7, 7) != sort_of("train", 4096 * 20, 20)
    assert sort_of("train", 2048, 1) != sort_of("evaluate", 2048, 1)
    assert sort_of("flush", 0, 0) == "flush 0"


# In the engine


def work(engine: Engine, seconds: dict[str, float], rounds: int) -> None:
    """Let each node do one task after the other, of the given seconds each."""
    due = dict.fromkeys(seconds, engine.now)
    for node in seconds:
        engine.next(node)
        due[node] = engine.now + seconds[node]
    for _ in range(rounds):
        node = min(due, key=lambda name: due[name])
        engine.tick(max(0.0, due[node] - engine.now))
        for other in seconds:
            engine.heartbeat(other)
        task = next(iter(engine.held[node].values()), None)
        if task is not None:
            engine.offer(node, contribution(task))
            for job in list(engine.jobs):
                engine.answer(job)
        engine.next(node)
        due[node] = engine.now + seconds[node]


def test_a_false_claim_of_speed_is_corrected_after_a_few_tasks() -> None:
    engine = Engine(engine_settings(tokens=10**9))
    speeds = {"honest": 100.0, "liar": 1e6, "modest": 1.0}
    for node, claim in speeds.items():
        engine.hello(node, profile=NodeProfile(claim))
    work(engine, dict.fromkeys(speeds, 1.0), 3)
    rates = [engine.machine.parts[CostModel].rate(node) for node in engine.state.nodes.values()]
    assert max(rates) < 1.5 * min(rates)
    work(engine, dict.fromkeys(speeds, 1.0), 9)
    rates = [engine.machine.parts[CostModel].rate(node) for node in engine.state.nodes.values()]
    assert max(rates) < 1.1 * min(rates)


def test_expectations_are_on_the_ledger_and_a_replay_learns_the_same() -> None:
    engine = Engine(engine_settings(tokens=10**9))
    for node in ("a", "b"):
        engine.hello(node)
    work(engine, {"a": 1.0, "b": 3.0}, 60)
    replayed = State()
    for decision in engine.journal:
        apply(replayed, decision)
    for name, node in engine.state.nodes.items():
        assert node.speed.learned.tasks > LEARNING
        assert replayed.nodes[name].speed.learned == node.speed.learned
    seen = Hindsight()
    for decision in engine.journal:
        seen.add(decision)
    assert seen.error is not None
    assert seen.error < 0.15
    slow, fast = ([d.terms.compute for d in engine.journal if isinstance(d, Assigned) and d.node == n] for n in "ba")
    assert slow[-1] == pytest.approx(3 * fast[-1], rel=0.2)


def test_hindsight_compares_what_was_expected_with_what_was_seen(tmp_path: Path) -> None:
    rows: list[Decision] = [NodeChanged(0.0, "a", "enrolled", key="a"), NodeChanged(0.0, "a", "joined", session=1)]
    for number in range(1, LEARNING + 4):
        rows += [
            some.assigned(10.0 * number, number, "a", compute=5.0, fetch=1.0, send=2.0, compute_spread=number / 33),
            some.judged(10.0 * number + 10.0, number, "a"),
        ]
    lost = some.assigned(500.0, 99, "a", compute=1.0), Noted(501.0, Released(99, "declined"), "a")
    seen = Hindsight()
    for row in [*rows, *lost]:
        seen.add(row)
    assert len(seen.early) == LEARNING
    assert seen.errors.numbers == [pytest.approx(0.2)] * 3
    assert (seen.told, seen.near, seen.within) == (3, 0, 0.0)
    payloads = {d.assignment: b"p" for d in rows if isinstance(d, Judged)}
    with Ledger(tmp_path / "ledger.sqlite", tmp_path / "segments") as ledger:
        ledger.commit([*rows, *lost], payloads)
    told = Foreseen()
    with LedgerView(tmp_path / "ledger.sqlite") as view:
        RowFeed(view, [told]).advance()
    assert told.hindsight == seen


@given(st.lists(st.floats(0.0, 1e6)))
def test_a_running_median_is_that_of_all_so_far(numbers: list[float]) -> None:
    running = RunningMedian()
    for count, number in enumerate(numbers, 1):
        running.add(number)
        assert running.value == median(numbers[:count])
    assert sorted(running.numbers) == sorted(numbers)


def test_uploads_tell_a_nodes_way_up() -> None:
    engine = Engine(engine_settings(tokens=10**9, rungs=(1 << 20,)))
    engine.hello("a")
    engine.next("a")
    (task,) = engine.held["a"].values()
    offered = contribution(task, payload=Blob(digest(task.id), 1 << 20))
    engine.handle(ev.Received("a", Offer(offered)))
    engine.tick(4.0)
    engine.upload("a", task.id)
    assert engine.machine.parts[CostModel].link(engine.state.nodes["a"]).up == pytest.approx((1 << 20) / 4.0)


@pytest.mark.parametrize("sigma", [0.1, 0.2])
def test_the_error_is_within_the_target_with_noise(sigma: float) -> None:
    """Simulate lognormal noise and a load that drifts, with three lengths of rows."""
    chance, errors = random.Random(3), []
    for _ in range(20):
        learned, load, rate = Learned(), 0.0, math.exp(chance.gauss(0.0, 1.0))
        for number in range(60):
            load = 0.9 * load + chance.gauss(0.0, 0.05)
            length = chance.choice((256, 512, 1024))
            sort, size = sort_of("train", 160 * length, 20), 160.0 * length
            took = size / rate * (length / 256) ** 0.3 * math.exp(load + chance.gauss(0.0, sigma))
            if number >= LEARNING:
                errors.append(abs(learned.compute(sort, size) / took - 1))
            learned.finished(sort, size, took)
    assert median(errors) <= 0.15 + (sigma - 0.1) / 2
