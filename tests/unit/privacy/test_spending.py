"""The count behind a budget: against a count of each row by itself, and what an assignment would make of it."""

from __future__ import annotations

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from barnraise.core.types import RowRange
from barnraise.privacy.spending import ROW, SITE, Spending

SIZE = 40


@st.composite
def assignments(draw: st.DrawFn) -> list[tuple[list[RowRange], int]]:
    """Draw tasks of a few ranges, which may overlap, as where data have few rows."""
    found = []
    for _ in range(draw(st.integers(1, 12))):
        ranges = []
        for _ in range(draw(st.integers(1, 3))):
            start = draw(st.integers(0, SIZE - 1))
            ranges.append(RowRange(draw(st.integers(0, 1)), start, draw(st.integers(start + 1, SIZE))))
        found.append((ranges, draw(st.integers(1, 5))))
    return found


@given(assignments())
def test_the_count_of_pieces_is_that_of_each_row(tasks: list[tuple[list[RowRange], int]]) -> None:
    spending, each = Spending(ROW), np.zeros((2, SIZE), int)
    for ranges, steps in tasks:
        mask = np.zeros((2, SIZE), bool)
        for some in ranges:
            mask[some.shard, some.start : some.stop] = True
        assert spending.after("a", ranges, steps) == each[mask].max() + steps
        spending.assigned("a", ranges, steps)
        each[mask] += steps
        assert spending.most == each.max()
    for shard, stops in spending.stops.items():
        assert len(stops) <= 2 * 3 * len(tasks) + 1
        assert stops == sorted(set(stops))
        lengths = np.diff([0, *stops])
        assert np.array_equal(np.repeat(spending.steps[shard], lengths), each[shard][: stops[-1]])
    again = msgspec.json.decode(msgspec.json.encode(spending), type=Spending)
    assert again == spending


def test_a_pass_over_the_rows_leaves_one_piece() -> None:
    spending = Spending(ROW)
    for start in range(0, 100, 10):
        spending.assigned("a", [RowRange(0, start, start + 10)], 4)
    assert (spending.stops[0], spending.steps[0], spending.most) == ([100], [4], 4)


def test_changed_rows_begin_with_the_largest_count_of_the_earlier_ones() -> None:
    spending = Spending(ROW)
    spending.assigned("a", [RowRange(1, 0, 10)], 4)
    spending.assigned("a", [RowRange(1, 3, 5)], 4)
    spending.carry(1, 2)
    assert spending.after("a", [RowRange(2, 20, 30)], 4) == 12
    spending.assigned("a", [RowRange(2, 20, 30)], 4)
    assert (spending.most, spending.stops[2], spending.steps[2]) == (12, [20, 30], [8, 12])
    spending.carry(2, 3)
    spending.carry(3, 4)
    assert [spending.after("a", [RowRange(shard, 0, 1)], 1) for shard in (2, 3, 4, 5)] == [9, 13, 13, 1]


def test_a_site_spends_by_its_own_tasks() -> None:
    spending = Spending(SITE)
    for node in ("a", "b", "a"):
        spending.assigned(node, [RowRange(0, 0, 1)], 20)
    assert (spending.most, spending.after("b", (), 20), spending.after("c", (), 20)) == (2, 2, 1)
