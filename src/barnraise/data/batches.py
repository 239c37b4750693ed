"""The order of a task's rows: it follows from the task, so any node can tell the rows of each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from barnraise.core.types import Batches
from barnraise.data.columns import BEGINS, TOKENS, TRAINED, Rows, loaded_type
from barnraise.data.meta import Format
from barnraise.data.shards import IGNORED, labels, row_lengths

__all__ = ["Batch", "Rows", "batch_of", "batches", "taken"]

Places = npt.NDArray[np.int64]

Batch = dict[str, npt.NDArray[Any]]
"""Arrays by name, each [rows, ...]; of text `input_ids` and `labels` (-100: no target), int64 [rows, length]."""

MakeBatch = Callable[[Rows, Format, np.random.Generator], Batch]
"""Makes a batch of rows, with random numbers of its own."""


def batches(
    parts: Sequence[Rows],
    order: Batches,
    form: Format,
    make: MakeBatch = lambda rows, form, chance: batch_of(rows, form),
) -> Iterator[Batch]:
    """Yield the rows of all `parts`, each [any], in random batches, each row once, as `make` makes them.

    Padding costs time: batches are of rows of like length, and end with their longest. Rows of parts of different
    lengths are never in one batch; tasks have parts of one length alone, unless a controller says otherwise.
    """
    rng, size = np.random.default_rng(order.seed), order.size
    found: list[tuple[list[Rows], Places, int]] = []  # parts, the places of a batch among their rows, its longest row
    for row in dict.fromkeys(part.dtype for part in parts):
        alike = [part for part in parts if part.dtype == row]
        lengths = np.concatenate([row_lengths(part, form) for part in alike])
        places = rng.permutation(len(lengths))
        places = places[np.argsort(lengths[places], kind="stable")]
        chosen = (places[begin : begin + size] for begin in range(0, len(places), size))
        found += [(alike, few, int(lengths[few].max())) for few in chosen]
    for place, number in enumerate(rng.permutation(len(found))):
        alike, few, longest = found[number]
        yield make(taken(alike, few, form, longest), form, np.random.default_rng((order.seed, place)))


def batch_of(rows: Rows, form: Format) -> Batch:
    """Return rows of text as a batch, with `position_ids` if several examples share a row: each begins at 0."""
    ids, names = rows[TOKENS].astype(np.int64), rows.dtype.names or ()
    if TRAINED not in names:
        return {"input_ids": ids, "labels": labels(rows[TOKENS], form)}
    if BEGINS not in names:
        return {"input_ids": ids, "labels": np.where(rows[TRAINED], ids, IGNORED)}
    begins, places = rows[BEGINS].copy(), np.arange(ids.shape[1])
    begins[:, 0] = True
    positions = places - np.maximum.accumulate(np.where(begins, places, 0), axis=1)
    learnt = rows[TRAINED] & ~begins  # no token is predicted from another example
    return {"input_ids": ids, "labels": np.where(learnt, ids, IGNORED), "position_ids": positions}


def taken(parts: Sequence[Rows], places: Places, form: Format, length: int) -> Rows:
    """Return the first `length` tokens of the rows at these places of the concatenated parts.

    No other rows are copied, since a task may name the same rows repeatedly.
    """
    ends = np.cumsum([len(part) for part in parts])
    owners = np.searchsorted(ends, places, side="right")
    found = np.empty(len(places), loaded_type(form.fields, length, form.dtype_name))
    for owner in np.unique(owners):
        mine, part = owners == owner, parts[owner]
        chosen = places[mine] - (ends[owner] - len(part))
        for column in form.fields:
            inside = tuple(slice(side) for side in column.sides(length))
            found[column.name][mine] = part[column.name][chosen, *inside]
    return found
