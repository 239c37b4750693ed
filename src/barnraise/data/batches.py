"""The order in which a task goes through its rows: whoever knows the task knows which rows each of its steps took."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from barnraise.core.types import Batches
from barnraise.data.meta import Format
from barnraise.data.shards import labels, row_lengths

Rows = np.ndarray[Any, Any]
"""Token ids [any, length]."""

Batch = tuple[Rows, Rows]
"""Token ids and labels (-100 where nothing is to be predicted), int64 [batch, length]."""


def batches(parts: Sequence[Rows], order: Batches, form: Format) -> Iterator[Batch]:
    """The rows of all `parts`, each [any, length], in random batches, each row once.

    Padding costs time: batches are of rows of like length, and end with their longest. Rows of parts of different
    lengths are never in one batch; tasks have parts of one length alone, unless a controller says otherwise.
    """
    rng, size = np.random.default_rng(order.seed), order.size
    found: list[tuple[Rows, Rows, int]] = []  # rows, the places of a batch among them, its longest row
    for length in dict.fromkeys(part.shape[1] for part in parts):
        rows = np.concatenate([part for part in parts if part.shape[1] == length])
        lengths = row_lengths(rows, form)
        places = rng.permutation(len(rows))
        places = places[np.argsort(lengths[places], kind="stable")]
        chosen = (places[begin : begin + size] for begin in range(0, len(rows), size))
        found += [(rows, few, lengths[few].max()) for few in chosen]
    for number in rng.permutation(len(found)):
        rows, few, longest = found[number]
        batch = rows[few, :longest]
        yield batch.astype(np.int64), labels(batch, form)
