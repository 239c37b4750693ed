"""Where the next rows come from: several shards at a time, so that a node can go on with one that it has already.

Each shard is a lane, whose rows are handed out in order, all of them once an epoch. Open are the lanes that come next,
as many as nodes may want to work apart, up to the same shard once more: no row is handed out a third time before
another has been once, and all else is a matter of who came when. Rows were shuffled when the dataset was made: any
order of shards is a random one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count

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
            sizes, handed, turns = self.rows.sizes, self.handed, self.rows.num_shards
            epoch, turn = divmod(self._front, turns)
            place = (self.rows.start + turn) % turns
            self._open, self._most = [], most
            for _ in range(turns):
                if handed.get(place, 0) < (epoch + 1) * sizes[place]:
                    self._open.append(place)
                    if len(self._open) == most:
                        break
                place, turn = (place + 1) % turns, turn + 1
                epoch += turn % turns == 0
        return self._open

    def went_on(self, shards: Iterable[int]) -> None:
        """Rows of these were handed out."""
        if any(self.handed.get(shard, 0) % self.rows.sizes[shard] == 0 for shard in shards):
            self._most = 0

    def take(self, shard: int, wanted: int, most: int) -> tuple[RowRange, ...]:
        """The next `wanted` rows from a lane on, at most `most` ranges of them: where it ends, those of the oldest
        follow, again and again where the data has few rows, unless they have another length. A lane that was open, and
        is not any more, has ended."""
        taken: dict[int, int] = {}
        found: list[RowRange] = []
        self._advance()
        if self._number(shard) >= self._front + self.rows.num_shards:
            shard = self._shard(self._front)
        while wanted > 0 and len(found) < most:
            size, done = self.rows.sizes[shard], self.handed.get(shard, 0) + taken.get(shard, 0)
            start = self.rows.place(shard, done)
            rows = min(wanted, size - done % size, size - start)
            found.append(RowRange(shard, start, start + rows))
            taken[shard] = taken.get(shard, 0) + rows
            wanted -= rows
            if (done + rows) % size == 0:
                ended, shard = shard, self._shard(next(n for n in count(self._front) if self._behind(n, taken)))
                if self.rows.lengths[ended] != self.rows.lengths[shard]:
                    break
        return tuple(found)

    def _advance(self) -> None:
        while not self._behind(self._front, {}):
            self._front += 1

    def _behind(self, number: int, taken: Mapping[int, int]) -> bool:
        """Whether that shard of all epochs has something left, once so many rows more are `taken` of some."""
        shard = self._shard(number)
        done = self.handed.get(shard, 0) + taken.get(shard, 0)
        return done < (number // self.rows.num_shards + 1) * self.rows.sizes[shard]

    def _number(self, shard: int) -> int:
        """Where in the order of all epochs the lane is."""
        epoch = self.handed.get(shard, 0) // self.rows.sizes[shard]
        return epoch * self.rows.num_shards + (shard - self.rows.start) % self.rows.num_shards

    def _shard(self, number: int) -> int:
        return (self.rows.start + number) % self.rows.num_shards
