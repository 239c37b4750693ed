"""Random batches: each row by a draw of its own, whatever the others' are."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from barnraise.core.errors import PayloadError
from barnraise.data.columns import loaded_type
from barnraise.data.meta import Format
from barnraise.privacy.examples.poisson import poisson_batches
from barnraise.privacy.gaussian import SecretStream

FORM = Format(kind="text", tokenizer="bytes", context=4, vocab_size=256)


def part(first: int, count: int, length: int = 4) -> np.ndarray:  # type: ignore[type-arg]
    rows = np.zeros(count, loaded_type(FORM.fields, length, FORM.dtype_name))
    rows["tokens"] = np.arange(first, first + count)[:, None]
    return rows


def test_each_row_is_in_a_batch_with_the_rate() -> None:
    counts = np.zeros(30, int)
    sizes = []
    for batch in poisson_batches([part(0, 10), part(10, 20)], FORM, rate=0.2, steps=800, stream=SecretStream()):
        ids = batch["input_ids"][:, 0] if len(batch["input_ids"]) else np.array([], int)
        assert len(set(ids.tolist())) == len(ids)
        counts[ids] += 1
        sizes.append(len(ids))
    assert len(sizes) == 800
    assert stats.chisquare(counts).pvalue > 1e-6
    assert stats.binomtest(int(counts.sum()), 30 * 800, 0.2).pvalue > 1e-6
    assert min(sizes) != max(sizes)


def test_rows_of_several_lengths_are_refused() -> None:
    with pytest.raises(PayloadError, match="several lengths"):
        next(poisson_batches([part(0, 2), part(0, 2, 8)], FORM, rate=0.5, steps=1, stream=SecretStream()))
