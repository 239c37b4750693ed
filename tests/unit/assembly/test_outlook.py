"""Draws of the rest of a run: how often nodes come and go, the work of a fleet, and when the tokens are counted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from barnraise.account.calibration import Calibration, of_decisions
from barnraise.assembly.outlook import (
    DrawnPace,
    FutureFleet,
    Joiner,
    drawn_fleet,
    drawn_pace,
    past_of,
    seconds_until,
)
from barnraise.core.types import NodeProfile
from barnraise.emulation.churn import ChurnEvent
from barnraise.ledger import Decision, NodeChanged

from ...decisions import assigned, judged


def changed(time: float, node: str, change: Any) -> NodeChanged:
    return NodeChanged(time, node, change, session=1, profile=NodeProfile(100.0))


def steady(*nodes: str, until: float = 1000.0, seconds: float = 4.0, away: Any = ()) -> Calibration:
    """Nodes that finish a task of 400 tokens each `seconds`, but while they are `away`: (node, begin, end)."""
    rows: list[Decision] = [changed(0.0, node, "joined") for node in nodes]
    for node, begin, end in away:
        rows += [changed(begin, node, "left"), *([changed(end, node, "joined")] if end < until else [])]
    number = 0
    for node in nodes:
        gone = [(begin, end) for name, begin, end in away if name == node]
        for place in range(int(until / seconds)):
            begin, end = place * seconds, (place + 1) * seconds
            if not any(begin < stop and start < end for start, stop in gone):
                number += 1
                rows += [assigned(begin, number, node), judged(end, number, node)]
    return of_decisions(sorted(rows, key=lambda row: row.time))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_a_steady_past_reaches_all_of_its_work() -> None:
    past = past_of(steady("a", "b"), 1000.0)
    assert past.share == pytest.approx(1.0, rel=0.02)
    assert past.rates == pytest.approx([100.0, 100.0])
    assert past.width * len(past.tokens) == pytest.approx(996.0)


def test_nothing_is_expected_that_never_happened() -> None:
    past = past_of(steady("a", "b"), 1000.0)
    fleet, _ = drawn_fleet(past, rng(), 10_000.0)
    assert fleet.present.all()
    assert not fleet.changes


def test_departures_and_returns_are_expected_as_often_as_they_were() -> None:
    away = [("a", begin, begin + 50.0) for begin in np.arange(100.0, 1000.0, 200.0)]
    past = past_of(steady("a", "b", away=away), 1000.0)
    coming = past.coming
    assert (coming.departures.events, coming.returns.events) == (5, 5.5)
    assert coming.departures.rate * coming.leaves[0] == pytest.approx(6 / (750 + 350), rel=0.1)
    assert coming.leaves[1] < 0.4 < 1.0 < coming.leaves[0]
    assert coming.returns.rate == pytest.approx(1 / 45.0, rel=0.1)
    times = [drawn_fleet(past, rng(seed), 10_000.0)[0] for seed in range(50)]
    absent = [1.0 - one.work(10.0, 1000).mean() / one.rates.sum() for one in times]
    assert 0.05 < float(np.mean(absent)) < 0.3


def test_a_node_that_left_and_never_returned_may_return_late() -> None:
    past = past_of(steady("a", "b", away=[("b", 500.0, math.inf)]), 1000.0)
    assert past.present.tolist() == [True, False]
    assert 0.0 < past.coming.returns.rate < 1 / 500.0


def test_a_revoked_node_does_not_return() -> None:
    found = steady("a", "b", away=[("b", 100.0, 200.0)])
    found.add(0, changed(1000.0, "b", "revoked"))
    past = past_of(found, 1200.0)
    assert past.coming.comes_back.tolist()[1] == 0.0
    for seed in range(20):
        fleet, _ = drawn_fleet(past, rng(seed), 100_000.0)
        assert not any(change.up for change in fleet.changes.get(1, ()))


def test_new_nodes_are_expected_at_the_observed_rate() -> None:
    found = steady("a")
    for place in range(8):
        found.add(0, changed(100.0 * (place + 1), f"new-{place}", "joined"))
    past = past_of(found, 1000.0)
    assert past.coming.arrivals.rate == pytest.approx(8 / 996.0)
    numbers = [len(drawn_fleet(past, rng(seed), 1000.0)[0].names) - len(past.names) for seed in range(100)]
    assert 6.0 < float(np.mean(numbers)) < 10.0


def test_work_follows_who_is_up() -> None:
    changes = {0: (ChurnEvent(10.0, up=False), ChurnEvent(25.0, up=True)), 1: (ChurnEvent(5.0, up=True),)}
    fleet = FutureFleet(("a", "b"), np.array([10.0, 100.0]), np.array([True, False]), changes)
    assert fleet.work(10.0, 4).tolist() == pytest.approx([60.0, 100.0, 105.0, 110.0])


def test_changes_of_the_fleet_change_no_draw_of_the_others() -> None:
    away = [("a", begin, begin + 50.0) for begin in np.arange(100.0, 1000.0, 200.0)]
    past = past_of(steady("a", "b", "c", away=away), 1000.0)
    usual, _ = drawn_fleet(past, rng(3), 1000.0)
    other, _ = drawn_fleet(past, rng(3), 1000.0, [Joiner("d", 7.0)], ["c"])
    assert other.changes.get(0) == usual.changes.get(0)
    assert other.rates[:3].tolist() == usual.rates.tolist()
    assert other.names == ("a", "b", "c", "d")
    assert other.present.tolist() == [True, True, False, False]
    assert other.work(10.0, 1)[0] == pytest.approx(usual.work(10.0, 1)[0] - usual.rates[2] + 7.0)


def pace(share: float = 1.0) -> DrawnPace:
    return DrawnPace(share, np.ones(4), np.zeros(3000, int))


@pytest.mark.parametrize("usual", [10.0, 1000.0, 1e6])
def test_the_tokens_are_counted_when_the_work_is_done(usual: float) -> None:
    fleet = FutureFleet(("a",), np.array([100.0]), np.array([True]), {})
    found = seconds_until(50.0 * usual, fleet, pace(0.5), 1.0, usual)
    assert found == pytest.approx(usual, rel=1e-6)


def test_a_run_whose_nodes_leave_for_ever_has_no_end() -> None:
    fleet = FutureFleet(("a",), np.array([100.0]), np.array([True]), {0: (ChurnEvent(5.0, up=False),)})
    assert seconds_until(499.0, fleet, pace(), 1.0, 5.0) == pytest.approx(4.99)
    assert seconds_until(501.0, fleet, pace(), 1.0, 5.0) == math.inf
    assert seconds_until(0.0, fleet, pace(), 1.0, 5.0) == 0.0


def test_the_doubt_about_throughput_falls_with_the_contributions() -> None:
    spread = []
    for until in (20.0, 200.0, 20_000.0):
        past = past_of(steady("a", until=until), until)
        drawn = [math.log(drawn_pace(past, past.rates, rng(seed), 2 * until).share) for seed in range(200)]
        spread.append(float(np.std(drawn)))
    assert spread == sorted(spread, reverse=True)
    assert spread[-1] < 0.05


def test_the_simulators_share_counts_while_contributions_are_few() -> None:
    few, many = (past_of(steady("a", until=until), until) for until in (12.0, 4000.0))
    share = {}
    for name, past in (("few", few), ("many", many)):
        drawn = [drawn_pace(past, past.rates, rng(seed), 100.0, prior=0.5, weight=4.0).share for seed in range(400)]
        share[name] = float(np.median(drawn))
    assert share["few"] < 0.75
    assert share["many"] == pytest.approx(1.0, rel=0.05)
