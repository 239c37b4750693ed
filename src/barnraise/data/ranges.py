"""Which shards a dataset has, and how many rows. No numpy, no torch: a state machine calls this."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate


class RowIndex:
    """The rows of all shards, and which of them comes first: row `first` of all, somewhere in a shard's midst.

    Rows were shuffled when the dataset was made, so a contiguous range is a random sample.
    """

    __slots__ = ("_ends", "_first", "_shard", "total")

    def __init__(self, shard_rows: Sequence[int], first: int = 0) -> None:
        assert all(rows > 0 for rows in shard_rows), "a shard without rows"
        self._ends = list(accumulate(shard_rows))
        self.total = self._ends[-1] if self._ends else 0
        assert self.total > 0, "a dataset without rows"
        self._first = first
        self._shard = bisect_right(self._ends, first % self.total)

    @property
    def num_shards(self) -> int:
        return len(self._ends)

    def size(self, shard: int) -> int:
        """Rows of a shard."""
        return self._ends[shard] - self._begin(shard)

    def nth(self, place: int) -> int:
        """The shard that comes so many after that of row `first`."""
        return (self._shard + place) % len(self._ends)

    def turn(self, shard: int) -> int:
        """The `place` at which it is the `nth`."""
        return (shard - self._shard) % len(self._ends)

    def place(self, shard: int, done: int) -> int:
        """The row of a shard that comes after `done` others of it: it is gone around, too, and `first` lies in its
        midst.

        >>> index = RowIndex([4, 3], first=5)
        >>> [index.place(1, done) for done in range(4)], index.place(0, 1)
        ([1, 2, 0, 1], 1)
        """
        offset = self._first % self.total - self._begin(shard) if shard == self._shard else 0
        return (offset + done) % self.size(shard)

    def _begin(self, shard: int) -> int:
        return self._ends[shard - 1] if shard else 0
