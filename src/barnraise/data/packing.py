"""Packing: several examples in one row, so that few positions are padding."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from barnraise.data.columns import BEGINS, LENGTH, TOKENS, TRAINED, RowColumn
from barnraise.data.tokenizers import TokenIds

COLUMNS = (
    RowColumn(name=TOKENS, dtype="token", shape=(LENGTH,)),
    RowColumn(name=TRAINED, dtype="bool", shape=(LENGTH,)),
)
"""The columns of rows with one example each: the tokens, and which of them are learnt."""

PACKED_COLUMNS = (*COLUMNS, RowColumn(name=BEGINS, dtype="bool", shape=(LENGTH,)))
"""The columns of rows with several examples: also where each example, and the padding behind the last, begins."""

ROWS_AT_ONCE = 512
"""Rows that the examples placed together would fill, about; the longest example is placed first."""

OPEN_ROWS = 256
"""Rows with the most room that stay open for the examples that follow."""


class EncodedExample(NamedTuple):
    """An example as token ids, and which of them are learnt."""

    ids: TokenIds
    trained: npt.NDArray[np.bool_]


Columns = dict[str, npt.NDArray[np.generic]]


class _OpenRow:
    """A row that is not full yet."""

    __slots__ = ("examples", "room")

    def __init__(self, room: int) -> None:
        self.examples: list[EncodedExample] = []
        self.room = room


def pack(examples: Iterable[EncodedExample], context: int, pad: int) -> Iterator[Columns]:
    """Yield rows of `context` tokens as `PACKED_COLUMNS`, each example whole in one of them.

    Examples are gathered and placed by best fit, the longest first: each goes into the row that it fills most. The same
    examples give the same rows. An example has at most `context` tokens.
    """
    rows = _OpenRows(context)
    gathered: list[EncodedExample] = []
    size = 0
    for example in examples:
        gathered.append(example)
        size += len(example.ids)
        if size >= ROWS_AT_ONCE * context:
            rows.place(gathered)
            yield _arrays(rows.full(OPEN_ROWS), context, pad)
            gathered, size = [], 0
    rows.place(gathered)
    while last := rows.full(0, ROWS_AT_ONCE):
        yield _arrays(last, context, pad)


def separate(examples: Iterable[EncodedExample], context: int, pad: int) -> Iterator[Columns]:
    """Yield rows of `context` tokens as `COLUMNS`, with one example each."""
    gathered: list[_OpenRow] = []
    for example in examples:
        row = _OpenRow(0)
        row.examples.append(example)
        gathered.append(row)
        if len(gathered) >= ROWS_AT_ONCE:
            yield _without_begins(_arrays(gathered, context, pad))
            gathered = []
    if gathered:
        yield _without_begins(_arrays(gathered, context, pad))


class _OpenRows:
    """The open rows, by the room that they have."""

    def __init__(self, context: int) -> None:
        self.context = context
        self._number = 0
        self._by_room: list[tuple[int, int]] = []  # room and number of each open row, ascending
        self._open: dict[int, _OpenRow] = {}

    def place(self, examples: list[EncodedExample]) -> None:
        for example in sorted(examples, key=lambda example: -len(example.ids)):
            size = len(example.ids)
            at = bisect_left(self._by_room, (size, 0))
            if at < len(self._by_room):
                _, number = self._by_room.pop(at)
            else:
                number, self._number = self._number, self._number + 1
                self._open[number] = _OpenRow(self.context)
            row = self._open[number]
            row.examples.append(example)
            row.room -= size
            insort(self._by_room, (row.room, number))

    def full(self, keep: int, most: int | None = None) -> list[_OpenRow]:
        """Take out the rows with the least room until `keep` are left, at most `most` rows."""
        count = max(0, len(self._by_room) - keep)
        taken = self._by_room[: count if most is None else min(most, count)]
        del self._by_room[: len(taken)]
        return [self._open.pop(number) for _, number in taken]


def _arrays(rows: list[_OpenRow], context: int, pad: int) -> Columns:
    tokens = np.full((len(rows), context), pad, np.uint32)
    trained = np.zeros((len(rows), context), bool)
    begins = np.zeros((len(rows), context), bool)
    for number, row in enumerate(rows):
        place = 0
        for example in row.examples:
            end = place + len(example.ids)
            tokens[number, place:end] = example.ids
            trained[number, place:end] = example.trained
            begins[number, place] = True
            trained[number, place] = False  # nothing in the example comes before it, of which it could be predicted
            place = end
        if place < context:
            begins[number, place] = True
    return {TOKENS: tokens, TRAINED: trained, BEGINS: begins}


def _without_begins(arrays: Columns) -> Columns:
    return {name: array for name, array in arrays.items() if name != BEGINS}
