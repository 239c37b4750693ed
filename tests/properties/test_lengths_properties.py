"""Properties of how text is cut into rows of several lengths, and of the order of their shards."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from barnraise.data.lengths import mean_length, shards_of
from barnraise.data.text import cut

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=8, unique=True).map(sorted)


def rows_of(pieces: list[int], lengths: list[int]) -> list[list[int]]:
    """The rows of the numbers from 0 on, which come in pieces of these sizes, by their first number."""
    ends = np.cumsum([0, *pieces])
    stream = [np.arange(start, stop, dtype=np.uint32) for start, stop in pairwise(ends)]
    return sorted(row.tolist() for rows in cut(stream, lengths) for row in rows)


@given(st.lists(st.integers(0, 200), max_size=8), LENGTHS)
def test_no_token_is_lost_or_doubled_but_for_the_tail(pieces: list[int], lengths: list[int]) -> None:
    rows = rows_of(pieces, lengths)
    tokens = [token for row in rows for token in row]
    assert tokens == list(range(len(tokens)))
    assert 0 <= sum(pieces) - len(tokens) < lengths[-1]
    assert {len(row) for row in rows} <= set(lengths)


@given(st.lists(st.integers(0, 200), max_size=8), LENGTHS)
def test_all_lengths_have_the_same_share_wherever_the_text_ends(pieces: list[int], lengths: list[int]) -> None:
    taken = dict.fromkeys(lengths, 0)
    for row in rows_of(pieces, lengths):
        taken[len(row)] += len(row)
        assert max(taken.values()) - min(taken.values()) <= lengths[-1]


@given(st.lists(st.integers(0, 200), max_size=8), LENGTHS)
def test_it_does_not_matter_in_which_pieces_the_text_comes(pieces: list[int], lengths: list[int]) -> None:
    assert rows_of(pieces, lengths) == rows_of([sum(pieces)], lengths)


@given(st.dictionaries(st.integers(2, 50), st.integers(1, 5000), min_size=1, max_size=8), st.integers(1, 2000))
def test_shards_hold_each_row_once_and_meet_all_lengths_at_once(rows: dict[int, int], shard_tokens: int) -> None:
    layout = shards_of(rows, shard_tokens)
    for length, count in rows.items():
        own = [number for of, number in layout if of == length]
        assert sum(own) == count
        assert min(own) >= 1
        assert all(number == 1 or number * length <= shard_tokens for number in own)
    assert sorted(length for length, _ in layout[: len(rows)]) == sorted(rows)
    if len(rows) > 1:
        assert all(sum(1 for of, _ in layout if of == length) > 1 for length in rows if rows[length] > 1)


@given(LENGTHS)
def test_the_mean_is_between_the_shortest_and_the_longest(lengths: list[int]) -> None:
    assert lengths[0] <= mean_length(lengths) <= lengths[-1]
