"""Properties of the lanes that rows are handed out from, against the plainest account of each row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from barnraise.controller.work.shard_cursors import ShardCursors
from barnraise.core.types import MOST_ROW_RANGES, RowRange
from barnraise.data.ranges import RowIndex

shard_rows = st.lists(st.integers(1, 9), min_size=1, max_size=5)
asked = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 20)), max_size=40)


class Run:
    """Lanes, and a controller that keeps what it hands out."""

    def __init__(self, sizes: list[int], first: int = 0, lengths: Sequence[int] = ()) -> None:
        self.handed: dict[int, int] = {}
        self.lanes = ShardCursors(RowIndex(sizes, first, lengths=lengths), self.handed)
        self.rows: list[tuple[int, int]] = []

    def take(self, shard: int, wanted: int, most: int = MOST_ROW_RANGES) -> tuple[RowRange, ...]:
        found = self.lanes.take(shard, wanted, most)
        for rows in found:
            self.handed[rows.shard] = self.handed.get(rows.shard, 0) + rows.stop - rows.start
            self.rows += [(rows.shard, row) for row in range(rows.start, rows.stop)]
        self.lanes.went_on(rows.shard for rows in found)
        return found


@given(shard_rows, st.integers(0, 60), st.integers(1, 5), asked)
def test_rows_are_assigned_evenly_in_any_order_of_requests(
    sizes: list[int], first: int, most: int, asked: list[tuple[int, int]]
) -> None:
    run = Run(sizes, first)
    for choice, wanted in asked:
        lanes = run.lanes.open(most)
        assert 1 <= len(lanes) <= most
        assert len(set(lanes)) == len(lanes)
        assert lanes == ShardCursors(run.lanes.rows, dict(run.handed)).open(most), "what was kept of before is wrong"
        shard = choice % len(sizes)  # which may have been open only when it was looked for
        left = sizes[shard] - run.handed.get(shard, 0) % sizes[shard] if shard in run.lanes.open(len(sizes)) else 0
        found = run.take(shard, wanted)
        assert sum(rows.stop - rows.start for rows in found) == wanted
        assert sum(rows.stop - rows.start for rows in found if rows.shard == shard) >= min(wanted, left)
        counts = Counter(run.rows)
        assert max(counts.values()) <= 2 + min(counts[s, row] for s, size in enumerate(sizes) for row in range(size))


@given(shard_rows, asked)
def test_one_lane_at_a_time_is_one_shard_after_the_other(sizes: list[int], asked: list[tuple[int, int]]) -> None:
    run = Run(sizes)
    for _, wanted in asked:
        run.take(run.lanes.open(1)[0], wanted)
    circle = [(shard, row) for shard, size in enumerate(sizes) for row in range(size)]
    assert run.rows == (circle * (1 + len(run.rows) // len(circle)))[: len(run.rows)]


@given(shard_rows, st.integers(1, 200), st.integers(1, 5))
def test_a_task_is_of_so_many_ranges_at_most(sizes: list[int], wanted: int, most: int) -> None:
    assert len(Run(sizes).take(0, wanted, most)) <= most


@given(st.lists(st.tuples(st.integers(1, 9), st.sampled_from([64, 128])), min_size=1, max_size=6), asked)
def test_a_task_has_rows_of_one_length(shards: list[tuple[int, int]], asked: list[tuple[int, int]]) -> None:
    sizes, lengths = [size for size, _ in shards], [length for _, length in shards]
    run = Run(sizes, lengths=lengths)
    for choice, wanted in asked:
        found = run.take(run.lanes.open(3)[choice % len(run.lanes.open(3))], wanted)
        assert len({lengths[rows.shard] for rows in found}) == 1
    counts = Counter(run.rows)
    assert not counts or max(counts.values()) <= 2 + min(
        counts[s, row] for s, size in enumerate(sizes) for row in range(size)
    )


@given(st.lists(st.tuples(st.integers(1, 9), st.sampled_from([32, 64, 128])), min_size=1, max_size=6), asked)
@example([(1, 32), (3, 32)], [(0, 1), (0, 1), (0, 1), (1, 1), (0, 2), (0, 1)])  # a task goes round within one shard
def test_a_node_without_memory_for_long_rows_gets_short_rows(
    shards: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    sizes, lengths = [size for size, _ in shards], [length for _, length in shards]
    run, shortest = Run(sizes, lengths=lengths), min(lengths)
    for choice, wanted in asked:
        lanes = [shard for shard in run.lanes.open(3) if lengths[shard] == shortest]
        assert lanes == [s for s in ShardCursors(run.lanes.rows, dict(run.handed)).open(3) if lengths[s] == shortest]
        assert len(set(lanes)) == len(lanes)
        found = run.take(lanes[choice % len(lanes)], wanted)
        assert found
        assert {lengths[rows.shard] for rows in found} == {shortest}
    counts = Counter(run.rows)
    those = [(s, row) for s, size in enumerate(sizes) if lengths[s] == shortest for row in range(size)]
    assert not counts or max(counts.values()) <= 2 + min(counts[row] for row in those)
