from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.rows import text_rows

from barnraise.core.types import Batches
from barnraise.data.batches import batch_of, batches
from barnraise.data.columns import loaded_type
from barnraise.data.meta import Format
from barnraise.data.packing import PACKED_COLUMNS
from barnraise.data.shards import row_lengths
from barnraise.models.build import build
from barnraise.models.config import describe
from barnraise.training.causal_lm import CausalLM
from barnraise.training.local import CPU, tensors

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


def chat_rows() -> tuple[np.ndarray, Format]:
    """Return a row with examples of 3, 4 and 2 tokens and padding, and a full one with one example."""
    form = Format(kind="chat", tokenizer="bytes", context=CONTEXT + 4, vocab_size=50, columns=PACKED_COLUMNS)
    rows = np.zeros(2, loaded_type(form.fields, CONTEXT + 4, form.dtype_name))
    rows["tokens"] = np.arange(1, 25).reshape(2, 12)
    rows["begins"][0, [0, 3, 7, 9]] = rows["begins"][1, 0] = True
    rows["trained"][0, [2, 3, 5, 6, 8]] = True
    rows["trained"][1, 1:] = True
    return rows, form


def test_positions_begin_again_with_each_example() -> None:
    batch = batch_of(*chat_rows())
    assert batch["position_ids"].tolist()[0] == [0, 1, 2, 0, 1, 2, 3, 0, 1, 0, 1, 2]
    assert batch["position_ids"].tolist()[1] == list(range(12))


def test_no_token_is_predicted_from_another_example() -> None:
    labels = batch_of(*chat_rows())["labels"]
    assert [label for label in labels[0].tolist() if label >= 0] == [3, 6, 7, 9], "4 begins an example"


def test_batches_end_with_the_last_token_that_is_learnt() -> None:
    rows, form = chat_rows()
    found = list(batches([rows], Batches((), 1, 0), form))
    assert sorted(batch["input_ids"].shape[1] for batch in found) == [9, 12]


def test_the_loss_of_a_packed_row_is_that_of_its_examples() -> None:
    rows, form = chat_rows()
    shape = {"hidden_size": 16, "num_layers": 2, "num_heads": 2}
    module = build(describe({"architecture": "gpt2", "config": shape}, 50, 12))
    problem = CausalLM()
    packed, weight = problem.loss(module, tensors(batch_of(rows[:1], form), CPU))
    alone = []
    for start, stop in ((0, 3), (3, 7), (7, 9)):
        ids = rows["tokens"][:1, start:stop].astype(np.int64)
        labels = np.where(rows["trained"][:1, start:stop], ids, -100)
        alone.append(problem.loss(module, tensors({"input_ids": ids, "labels": labels}, CPU)))
    assert int(weight) == sum(int(count) for _, count in alone) == 4
    torch.testing.assert_close(packed, sum(loss for loss, _ in alone))
