"""The columns of a row: their names, numbers and shapes, and how a row lies in a file and in memory.

A row of text is one column, `tokens`. Other rows have more: a chat says which of its tokens are trained, a picture has
a label.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import UNSET, UnsetType

from barnraise.core.errors import DataError

MAX_CONTEXT = 1 << 20
MOST_COLUMNS, MOST_AXES = 16, 4
TOKENS, TRAINED, BEGINS = "tokens", "trained", "begins"
"""The token ids of a row; which of them are learnt; and where examples, and the padding behind them, begin."""
LENGTH: Literal["length"] = "length"

TokenType = Literal["uint16", "uint32"]
Rows = npt.NDArray[Any]
"""Rows as a structured array [n], with a field for each column."""

Arrays = Mapping[str, npt.NDArray[Any]] | Rows
"""An array [n, ...] for each column by name."""

Side = Annotated[int, msgspec.Meta(ge=1, le=MAX_CONTEXT)] | Literal["length"]


class RowColumn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A column of the rows: one number for each row, or an array of `shape`, whose sides may be the row's length.

    Numbers of the type `token` are ids of the vocabulary; their size follows from it. With `below` each number lies in
    [0, below): a label among `below` classes. A file holds `bool` as bits, the lowest of a byte first.
    """

    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]{0,31}\Z")]
    dtype: Literal["token", "bool", "uint8", "uint16", "uint32", "int32", "int64", "float16", "float32"]
    shape: Annotated[tuple[Side, ...], msgspec.Meta(max_length=MOST_AXES)] = ()
    below: Annotated[int, msgspec.Meta(ge=1, le=1 << 31)] | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.below is not UNSET and self.dtype in ("token", "bool", "float16", "float32"):
            raise DataError(f"column {self.name} of {self.dtype} has a limit below {self.below}; only integers may")

    def sides(self, length: int) -> tuple[int, ...]:
        """Return the shape in a row of `length`."""
        return tuple(length if side == LENGTH else side for side in self.shape)

    def num_bytes(self, length: int, token: TokenType) -> int:
        """Return the bytes in the file for a row of `length`."""
        size = math.prod(self.sides(length))
        return -(-size // 8) if self.dtype == "bool" else size * self.numbers(token).itemsize

    def numbers(self, token: TokenType) -> np.dtype[Any]:
        """Return the type of the numbers in memory, little-endian."""
        return np.dtype(token if self.dtype == "token" else self.dtype).newbyteorder("<")


TEXT = (RowColumn(name=TOKENS, dtype="token", shape=(LENGTH,)),)
"""The columns of rows of which nothing else is said."""


def loaded_type(columns: Sequence[RowColumn], length: int, token: TokenType) -> np.dtype[Any]:
    """Return the type of a row of `length` in memory."""
    return np.dtype([(column.name, column.numbers(token), column.sides(length)) for column in columns])


def stored_type(columns: Sequence[RowColumn], length: int, token: TokenType) -> np.dtype[Any]:
    """Return the type of a row of `length` in a file: as in memory, but booleans are bits."""
    return np.dtype(
        [
            (column.name, np.uint8, (column.num_bytes(length, token),))
            if column.dtype == "bool"
            else (column.name, column.numbers(token), column.sides(length))
            for column in columns
        ]
    )


def loaded(stored: Rows, columns: Sequence[RowColumn], length: int, token: TokenType) -> Rows:
    """Return rows of a file as they are in memory: a view where no column has bits, otherwise a copy."""
    if all(column.dtype != "bool" for column in columns):
        return stored
    rows = np.empty(len(stored), loaded_type(columns, length, token))
    for column in columns:
        found, sides = stored[column.name], column.sides(length)
        if column.dtype == "bool":
            bits = np.unpackbits(found, axis=1, count=math.prod(sides), bitorder="little")
            found = bits.reshape(len(stored), *sides)
        rows[column.name] = found
    rows.flags.writeable = False
    return rows


def copied_bytes(columns: Sequence[RowColumn], length: int, token: TokenType) -> int:
    """Return the bytes in memory of a row that `loaded` copies; 0 where it returns a view."""
    return loaded_type(columns, length, token).itemsize if any(column.dtype == "bool" for column in columns) else 0


def stored(rows: Rows, columns: Sequence[RowColumn], length: int, token: TokenType) -> Rows:
    """Return rows as they lie in a file: the same array where no column has bits, otherwise a copy."""
    if all(column.dtype != "bool" for column in columns):
        return rows
    found = np.empty(len(rows), stored_type(columns, length, token))
    for column in columns:
        numbers = rows[column.name]
        if column.dtype == "bool":
            numbers = np.packbits(numbers.reshape(len(rows), -1), axis=1, bitorder="little")
        found[column.name] = numbers
    return found


def filled(arrays: Arrays, columns: Sequence[RowColumn], length: int, vocab_size: int, token: TokenType) -> Rows:
    """Return `arrays`, one for each column by name, as rows; DataError when a name, shape or number does not fit."""
    rows = np.empty(len(arrays[columns[0].name]), loaded_type(columns, length, token))
    for column in columns:
        given, numbers = np.asarray(arrays[column.name]), column.numbers(token)
        wanted = (len(rows), *column.sides(length))
        if given.shape != wanted:
            raise DataError(f"column {column.name} of shape {list(given.shape)} given, but it has {list(wanted)}")
        if not (np.can_cast(given.dtype, numbers, "same_kind") or given.dtype.kind + numbers.kind in ("iu", "ui")):
            raise DataError(f"column {column.name} of {given.dtype} given, but it has {numbers}; convert it first")
        _check_limits(given, column, vocab_size)
        if numbers.kind in "iu" and given.size:
            limits, low, high = np.iinfo(numbers), int(given.min()), int(given.max())
            if low < limits.min or high > limits.max:
                raise DataError(f"numbers {low} to {high} given for column {column.name}, which has {numbers}")
        with np.errstate(over="ignore"):
            rows[column.name] = given
        if numbers.kind == "f" and not np.isfinite(rows[column.name]).all():
            raise DataError(
                f"column {column.name} holds numbers that are not finite in {numbers}; scale or leave them out"
            )
    return rows


def check_limits(rows: Rows, columns: Sequence[RowColumn], vocab_size: int) -> None:
    """Raise DataError where a number of `rows` is outside its column's limits."""
    for column in columns:
        _check_limits(rows[column.name], column, vocab_size)


def _check_limits(numbers: npt.NDArray[Any], column: RowColumn, vocab_size: int) -> None:
    limit = vocab_size if column.dtype == "token" else column.below
    if limit is UNSET or not numbers.size:
        return
    low, high = int(numbers.min()), int(numbers.max())
    if low < 0 or high >= limit:
        wrong = low if low < 0 else high
        if column.dtype == "token":
            raise DataError(f"token id {wrong}, but the vocabulary has {limit}")
        raise DataError(f"{wrong} in column {column.name}, whose numbers are from 0 to {limit - 1}")
