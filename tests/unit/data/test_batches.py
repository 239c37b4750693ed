from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import text_rows

from barnraise.core.types import Batches
from barnraise.data.batches import batches
from barnraise.data.meta import Format
from barnraise.data.shards import row_lengths

CONTEXT = 8
PADDED = Format(kind="sat", tokenizer="sat", context=CONTEXT, vocab_size=50, pad_id=0)
WHOLE = Format(kind="text", tokenizer="bytes", context=CONTEXT, vocab_size=50)


def padded(lengths: list[int]) -> np.ndarray:
    """Row i holds its number, i + 1, as often as it is long."""
    return text_rows(np.array([[i + 1] * n + [0] * (CONTEXT - n) for i, n in enumerate(lengths)]))


@given(st.lists(st.integers(1, CONTEXT), min_size=1, max_size=40), st.integers(1, 9), st.integers(0, 2**40))
def test_each_row_comes_once_and_only_padding_is_cut(lengths: list[int], batch_size: int, seed: int) -> None:
    rows = padded(lengths)
    found = []
    for batch in batches([rows], Batches((), batch_size, seed), PADDED):
        tokens, wanted = batch["input_ids"], batch["labels"]
        assert tokens.shape == wanted.shape
        assert len(tokens) <= batch_size
        assert (tokens[:, -1] != 0).any()
        assert ((wanted == -100) == (tokens == 0)).all()
        found += [(int(row[0]), int((row != 0).sum())) for row in tokens]
    assert sorted(found) == list(enumerate(lengths, start=1))


def test_the_seed_is_the_order() -> None:
    rows = padded([3] * 32)
    first, again, other = (
        [batch["input_ids"].tolist() for batch in batches([rows], Batches((), 4, seed), PADDED)] for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_rows_of_like_length_go_together_in_random_order() -> None:
    longest = [batch["input_ids"].shape[1] for batch in batches([padded([2, 8] * 64)], Batches((), 8, 0), PADDED)]
    assert sorted(longest) == [2] * 8 + [8] * 8
    assert longest != sorted(longest)


def test_without_padding_nothing_is_cut() -> None:
    rows = text_rows(np.zeros((5, CONTEXT)))
    assert row_lengths(rows, WHOLE).tolist() == [CONTEXT] * 5
    assert [batch["input_ids"].shape for batch in batches([rows], Batches((), 2, 0), WHOLE)].count((2, CONTEXT)) == 2


def test_lengths_end_with_the_last_token_that_is_no_padding() -> None:
    rows = text_rows(np.array([[1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 1]]))
    assert row_lengths(rows, PADDED).tolist() == [3, 4, 4]


@given(st.lists(st.tuples(st.integers(2, 4), st.integers(1, 20)), max_size=5), st.integers(1, 9), st.integers(0, 2**40))
def test_rows_of_several_lengths_are_never_in_one_batch(
    parts: list[tuple[int, int]], batch_size: int, seed: int
) -> None:
    ends = [0]
    for _, count in parts:
        ends.append(ends[-1] + count)
    rows = [
        text_rows(np.tile(np.arange(first, first + count)[:, None], length))
        for first, (length, count) in zip(ends, parts, strict=False)
    ]
    all_ids = [batch["input_ids"] for batch in batches(rows, Batches((), batch_size, seed), WHOLE)]
    found = [(ids.shape, ids[:, 0]) for ids in all_ids]
    assert sorted(int(row) for _, firsts in found for row in firsts) == list(range(ends[-1]))
    for (count, length), firsts in found:
        assert count <= batch_size
        assert all(
            rows[int(np.searchsorted(ends, row, "right")) - 1].dtype["tokens"].shape == (length,) for row in firsts
        )
    enough = -(-ends[-1] // batch_size)
    assert enough <= len(found) < enough + 3, "a length more makes one batch more at most"


def test_parts_of_one_length_are_as_one() -> None:
    rows = padded([3, 8, 1, 5, 8, 2, 2])
    whole, split = (
        [batch["input_ids"].tolist() for batch in batches(parts, Batches((), 2, 7), PADDED)]
        for parts in ([rows], [rows[:3], rows[3:]])
    )
    assert whole == split
