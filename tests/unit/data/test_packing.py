"""Packed rows: each example whole in one of them, few positions empty, the same rows each time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnraise.data.packing import OPEN_ROWS, EncodedExample, pack, separate

CONTEXT = 16
PAD = 99


def examples(lengths: list[int]) -> Iterator[EncodedExample]:
    """Yield an example of each length whose tokens are its number, all of them learnt."""
    for number, length in enumerate(lengths):
        yield EncodedExample(np.full(length, number, np.uint32), np.ones(length, bool))


@given(st.lists(st.integers(1, CONTEXT), max_size=60))
def test_each_example_is_whole_in_one_row(lengths: list[int]) -> None:
    found = []
    for arrays in pack(examples(lengths), CONTEXT, PAD):
        for tokens, trained, begins in zip(*arrays.values(), strict=True):
            assert begins[0]
            places = [*np.flatnonzero(begins), CONTEXT]
            for start, stop in pairwise(places):
                assert (tokens[start:stop] == tokens[start]).all()
                assert not trained[start], "no token of another example predicts the first one"
                if tokens[start] == PAD:
                    assert stop == CONTEXT
                    assert not trained[start:].any()
                else:
                    assert trained[start + 1 : stop].all()
                    found.append((int(tokens[start]), int(stop - start)))
    assert sorted(found) == list(enumerate(lengths))


def test_rows_are_filled_to_a_few_per_mille() -> None:
    chance = np.random.default_rng(0)
    lengths = np.minimum(1024, chance.lognormal(5.3, 0.9, 20_000).astype(int) + 8).tolist()
    rows = sum(len(arrays["tokens"]) for arrays in pack(examples(lengths), 1024, PAD))
    assert sum(lengths) / (rows * 1024) > 0.995


def test_equal_examples_give_equal_rows() -> None:
    lengths = np.random.default_rng(1).integers(1, CONTEXT + 1, 30_000).tolist()
    first, again = (list(pack(examples(lengths), CONTEXT, PAD)) for _ in range(2))
    assert len(first) > 2, "rows leave before all examples are there"
    for one, other in zip(first, again, strict=True):
        for name, array in one.items():
            np.testing.assert_array_equal(array, other[name])


def test_few_rows_stay_open() -> None:
    lengths = [CONTEXT // 2 + 1] * 40_000  # no two of these share a row
    taken = 0
    source = examples(lengths)

    def counted() -> Iterator[EncodedExample]:
        nonlocal taken
        for example in source:
            taken += 1
            yield example

    placed = 0
    for arrays in pack(counted(), CONTEXT, PAD):
        placed += len(arrays["tokens"])
        assert taken - placed <= OPEN_ROWS or taken == len(lengths)
    assert placed == len(lengths)


@pytest.mark.parametrize("count", [1, 5, 1500])
def test_separate_rows_have_one_example(count: int) -> None:
    rows = list(separate(examples([1 + number % CONTEXT for number in range(count)]), CONTEXT, PAD))
    assert sum(len(arrays["tokens"]) for arrays in rows) == count
    assert set(rows[0]) == {"tokens", "trained"}
    assert (rows[0]["tokens"][0, 1:] == PAD).all()
