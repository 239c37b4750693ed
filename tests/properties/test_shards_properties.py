"""Properties of cursors and labels, against the plainest implementation of each."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from barnraise.data.shards import IGNORED, Format, RowIndex, Targets, labels, ranges

shard_rows = st.lists(st.integers(1, 9), min_size=1, max_size=5)


@given(shard_rows, st.integers(0, 200), st.integers(0, 60))
def test_ranges_name_the_rows_a_walk_around_the_circle_meets(rows: list[int], start: int, count: int) -> None:
    circle = [(shard, row) for shard, number in enumerate(rows) for row in range(number)]
    walked = [circle[(start + step) % len(circle)] for step in range(count)]
    named = [(shard, row) for shard, begin, end in ranges(rows, start, count) for row in range(begin, end)]
    assert named == walked


@given(shard_rows, st.integers(0, 200), st.integers(1, 20), st.integers(1, 20))
def test_consecutive_tasks_join_without_gap(rows: list[int], start: int, first: int, second: int) -> None:
    index = RowIndex(rows)

    def flat(begin: int, count: int) -> list[tuple[int, int]]:
        return [(shard, row) for shard, low, high in index.ranges(begin, count) for row in range(low, high)]

    assert flat(start, first) + flat(start + first, second) == flat(start, first + second)


@given(st.lists(st.lists(st.integers(0, 5), min_size=12, max_size=12), min_size=1, max_size=4))
def test_labels_agree_with_reading_each_row_token_by_token(rows: list[list[int]]) -> None:
    form = Format(kind="sat", tokenizer="sat", context=12, vocab_size=6, pad_id=0, targets=Targets(after=1, until=2))
    expected = []
    for row in rows:
        learning, wanted = False, []
        for token in row:
            wanted.append(token if learning and token != 0 else IGNORED)
            learning = token == 1 or (learning and token != 2)
        expected.append(wanted)
    assert labels(np.array(rows, dtype=np.uint16), form).tolist() == expected
