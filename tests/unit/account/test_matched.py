"""The market's figures over a run."""

from __future__ import annotations

from itertools import pairwise

from barnraise.account.matched import MOST_POINTS, MarketCurve
from barnraise.ledger import Noted, notes


def test_a_long_run_has_a_bounded_number_of_points_that_cover_it() -> None:
    curve, count = MarketCurve(), 10 * MOST_POINTS
    for number in range(count):
        matched = notes.Matched(2, 3, number, number, 0.5, 0.75, 0.125, regret=0.1, rematches=2, priced=0.9)
        curve.add(number, Noted(float(number), matched), None)  # type: ignore[arg-type]
    assert MOST_POINTS / 2 <= len(curve.points) <= MOST_POINTS
    times = [point.time for point in curve.points]
    assert times[0] == 0.0
    assert {after - before for before, after in pairwise(times)} == {float(curve.stride)}
    assert count - times[-1] <= curve.stride
    assert curve.points[-1][1:] == (2, 3, int(times[-1]), 2, 0.5, 0.75, 0.9, 0.125, 0.1)
