"""The order of a task's rows: it follows from the task, so any node can tell the rows of each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from barnraise.core.types import Batches
from barnraise.data.meta import Format
from barnraise.data.shards import labels, row_lengths

Rows = np.ndarray[Any, Any]
"""Token ids [any, length]."""

Batch = dict[str, Rows]
"""Arrays by name, each [rows, ...]; of text `input_ids` and `labels` (-100: no target), int64 [rows, length]."""

MakeBatch = Callable[[Rows, Format, np.random.Generator], Batch]
"""Makes a batch of rows, with random numbers of its own."""


def text_batch(rows: Rows, form: Format, chance: np.random.Generator) -> Batch:
    """Return the token ids and the labels of `rows`."""
    return {"input_ids": rows.astype(np.int64), "labels": labels(rows, form)}


def batches(parts: Sequence[Rows], order: Batches, form: Format, make: MakeBatch = text_batch) -> Iterator[Batch]:
    """Yield the rows of all `parts`, each [any, length], in random batches, each row once, as `make` makes them.

    Padding costs time: batches are of rows of like length, and end with their longest. Rows of parts of different
    lengths are never in one batch; tasks have parts of one length alone, unless a controller says otherwise.
    """
    rng, size = np.random.default_rng(order.seed), order.size
    found: list[tuple[list[Rows], Rows, int]] = []  # parts, the places of a batch among their rows, its longest row
    for length in dict.fromkeys(part.shape[1] for part in parts):
        alike = [part for part in parts if part.shape[1] == length]
        lengths = np.concatenate([row_lengths(part, form) for part in alike])
        places = rng.permutation(len(lengths))
        places = places[np.argsort(lengths[places], kind="stable")]
        chosen = (places[begin : begin + size] for begin in range(0, len(places), size))
        found += [(alike, few, lengths[few].max()) for few in chosen]
    for place, number in enumerate(rng.permutation(len(found))):
        alike, few, longest = found[number]
        yield make(_taken(alike, few, longest), form, np.random.default_rng((order.seed, place)))


def _taken(parts: Sequence[Rows], places: Rows, length: int) -> Rows:
    """Return the first `length` tokens of the rows at these places of the concatenated parts.

    No other rows are copied, since a task may name the same rows repeatedly.
    """
    ends = np.cumsum([len(part) for part in parts])
    owners = np.searchsorted(ends, places, side="right")
    taken = np.empty((len(places), length), parts[0].dtype)
    for owner in np.unique(owners):
        mine, part = owners == owner, parts[owner]
        taken[mine] = part[places[mine] - (ends[owner] - len(part)), :length]
    return taken
