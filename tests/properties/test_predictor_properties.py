"""Expectations are finite, above 0, and grow with the work, for all observations."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from barnraise.matching.predictor import Learned, Times, transfer

anything = st.floats() | st.sampled_from([0.0, 5e-324, 1e308, math.inf, math.nan, -1.0])
sorts = st.sampled_from(["a", "b", "c"])
seconds = st.floats(1e-3, 1e6)


@given(st.lists(st.tuples(sorts, anything, st.builds(Times, anything, anything, anything), anything, anything)))
def test_nothing_that_was_seen_makes_an_expectation_worthless(
    tasks: list[tuple[str, float, Times, float, float]],
) -> None:
    learned = Learned()
    for sort, work, times, given_at, done in tasks:
        learned.observed(sort, work, times, given_at, done)
        assert math.isfinite(learned.pace)
        assert 0.0 < learned.spread < math.inf
        assert 0.0 <= learned.rate < math.inf
        for work_of_next in (1e-9, 1.0, 1e12):
            assert 0.0 <= learned.compute(sort, work_of_next) < math.inf
        assert 0.0 < learned.fetch(1.0) < math.inf
        assert 0.0 < learned.compute_spread(sort) < math.inf
        assert 0.0 < learned.link_spread < math.inf


@given(st.lists(st.tuples(sorts, st.floats(1.0, 1e6), seconds), min_size=1), st.lists(st.floats(1e-6, 1e9), min_size=2))
def test_more_work_takes_no_less_time(tasks: list[tuple[str, float, float]], works: list[float]) -> None:
    learned = Learned()
    for task in tasks:
        learned.finished(*task)
    for sort in "abc":
        expected = [learned.compute(sort, work) for work in sorted(works)]
        assert expected == sorted(expected)


@given(st.lists(st.floats(1.0, 1.2), min_size=5, max_size=40), st.integers(0, 39), st.floats(1e-6, 1e6))
def test_one_outlier_stays_among_the_others(took: list[float], place: int, odd: float) -> None:
    """However long one task took, what is expected stays within what the others took, but for results that come at
    once, which count with the one before."""
    learned = Learned()
    for number, each in enumerate(took):
        learned.finished("a", 1.0, odd if number == place % len(took) else each)
    assert 1.0 / 1.5 <= learned.compute("a", 1.0) <= 1.2 * 1.5


@given(st.floats(0.0, 1e18), st.floats(0.0, 1e18), st.floats(0.0, 1e6), st.floats(0.0, 1e18))
def test_transfers_are_finite_and_grow_with_their_bytes(few: float, band: float, latency: float, more: float) -> None:
    assert 0.0 <= transfer(few, band, latency) <= transfer(few + more, band, latency) < math.inf
