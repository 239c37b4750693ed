"""Where the next rows come from: several shards at a time, so that a node can go on with one that it has already.

Each shard is a lane, whose rows are handed out in order, all of them once an epoch. Open are the lanes that come next,
as many as nodes may want to work apart, up to the same shard once more: no row is handed out a third time before
another has been once, and all else is a matter of who came when. Rows were shuffled when the dataset was made: any
order of shards is a random one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count, islice

from barnraise.core.types import RowRange
from barnraise.data.ranges import RowIndex

MOST_LANES = 256
"""That are open at a time."""


class Lanes:
    """The lanes of `rows`, of which so many were `handed` out: shard -> rows, all epochs together."""

    def __init__(self, rows: RowIndex, handed: Mapping[int, int]) -> None:
        self.rows, self.handed = rows, handed
        self._front = 0  # the oldest shard, in the order of all epochs, that is not all handed out
        self._open: list[int] = []
        self._most = 0  # for which they were found; 0 when one of them has ended since

    def open(self, most: int) -> list[int]:
        """The next `most` lanes, the oldest first."""
        most = min(max(1, most), MOST_LANES)
        if most != self._most:
            self._advance()
            numbers = range(self._front, self._front + self.rows.num_shards)
            found = (self._shard(number) for number in numbers if self._behind(number, {}))
            self._open, self._most = list(islice(found, most)), most
        return self._open

    def went_on(self, shards: Iterable[int]) -> None:
        """Rows of these were handed out."""
        if any(self.handed.get(shard, 0) % self.rows.size(shard) == 0 for shard in shards):
            self._most = 0

    def left(self, shard: int) -> int:
        """Rows of it that this epoch of the lane has still to hand out."""
        size = self.rows.size(shard)
        return size - self.handed.get(shard, 0) % size

    def take(self, shard: int, wanted: int, most: int) -> tuple[RowRange, ...]:
        """The next `wanted` rows from a lane on, at most `most` ranges of them: where it ends, those of the oldest
        follow, again and again where the data has few rows. A lane that was open, and is not any more, has ended."""
        taken: dict[int, int] = {}
        found: list[RowRange] = []
        self._advance()
        if self._number(shard) >= self._front + self.rows.num_shards:
            shard = self._shard(self._front)
        while wanted > 0 and len(found) < most:
            size, done = self.rows.size(shard), self.handed.get(shard, 0) + taken.get(shard, 0)
            start = self.rows.place(shard, done)
            rows = min(wanted, size - done % size, size - start)
            found.append(RowRange(shard, start, start + rows))
            taken[shard] = taken.get(shard, 0) + rows
            wanted -= rows
            if (done + rows) % size == 0:
                shard = self._shard(next(number for number in count(self._front) if self._behind(number, taken)))
        return tuple(found)

    def _advance(self) -> None:
        while not self._behind(self._front, {}):
            self._front += 1

    def _behind(self, number: int, taken: Mapping[int, int]) -> bool:
        """Whether that shard of all epochs has something left, once so many rows more are `taken` of some."""
        shard = self._shard(number)
        done = self.handed.get(shard, 0) + taken.get(shard, 0)
        return done < (number // self.rows.num_shards + 1) * self.rows.size(shard)

    def _number(self, shard: int) -> int:
        """Where in the order of all epochs the lane is."""
        epoch = self.handed.get(shard, 0) // self.rows.size(shard)
        return epoch * self.rows.num_shards + self.rows.turn(shard)

    def _shard(self, number: int) -> int:
        return self.rows.nth(number % self.rows.num_shards)
