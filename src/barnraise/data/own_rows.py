"""A dataset of rows that a problem makes itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from barnraise.core.errors import DataError
from barnraise.data import shards
from barnraise.data.columns import Arrays
from barnraise.data.meta import Format, Meta


def build(folder: Path | str, form: Format, rows: Any, *, name: str, seed: int = 0) -> Meta:
    """Make a dataset in `folder` of `rows`: those to train on and those held out, an array for each column of `form`.

    Raises DataError, with the `name` of the problem, when they do not fit the columns; StorageError when the disk is
    full.
    """
    try:
        train, held_out = rows
        for arrays in (train, held_out):
            _check(arrays, form)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"the rows of the problem '{name}' are no pair (training, held-out) of an array for each column: {error}"
        ) from error
    except DataError as error:
        raise DataError(f"the rows of the problem '{name}': {error}") from error
    try:
        return shards.write(folder, form, [train], held_out, seed=seed)
    except DataError as error:
        raise DataError(f"the rows of the problem '{name}': {error}") from error


def _check(arrays: Arrays, form: Format) -> None:
    """Raise DataError unless there is an array for each column, all of as many rows."""
    names = arrays.dtype.names or () if isinstance(arrays, np.ndarray) else tuple(arrays)
    wanted = [column.name for column in form.fields]
    if sorted(names) != sorted(wanted):
        raise DataError(
            f"columns {', '.join(map(str, names)) or 'none'} given, but the problem has {', '.join(wanted)}"
        )
    counts = {name: len(arrays[name]) for name in wanted}
    if len(set(counts.values())) > 1:
        raise DataError("columns have different numbers of rows: " + ", ".join(f"{k} {n}" for k, n in counts.items()))
    for name in wanted:
        numbers = np.asarray(arrays[name])
        if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
            raise DataError(f"column {name} holds numbers that are not finite; leave those rows out")
