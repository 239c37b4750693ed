"""Where in a dataset a task's rows lie: a linear cursor over shards. No numpy, no torch: a state machine calls this."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

Range = tuple[int, int, int]  # (shard, start, stop): rows start..stop-1 of that shard


class RowIndex:
    """The rows of all shards as one circle, addressed by a cursor that only ever grows.

    Rows were shuffled when the dataset was made, so a contiguous range is a random sample. Row `cursor % total` follows
    the shards in order, from row `first` on; past the last row the next epoch begins at the first. `lengths` are the
    tokens of a row in each shard; a row counts as one token where they are not given.

    >>> index = RowIndex([4, 3])
    >>> index.total, index.ranges(2, 3), index.ranges(6, 2)
    (7, [(0, 2, 4), (1, 0, 1)], [(1, 2, 3), (0, 0, 1)])
    >>> RowIndex([4, 3], first=5).ranges(0, 3)
    [(1, 1, 3), (0, 0, 1)]
    >>> index = RowIndex([4, 3], lengths=[64, 128])
    >>> index.length(1), index.tokens([(0, 2, 4), (1, 0, 1)])
    (128, 256)
    """

    __slots__ = ("_ends", "_first", "_lengths", "total")

    def __init__(self, shard_rows: Sequence[int], first: int = 0, *, lengths: Sequence[int] = ()) -> None:
        assert all(rows > 0 for rows in shard_rows), "a shard without rows"
        assert not lengths or len(lengths) == len(shard_rows), "a length for each shard"
        self._ends = list(accumulate(shard_rows))
        self.total = self._ends[-1] if self._ends else 0
        assert self.total > 0, "a dataset without rows"
        self._first = first
        self._lengths = tuple(lengths) or (1,) * len(self._ends)

    @property
    def num_shards(self) -> int:
        return len(self._ends)

    def length(self, shard: int) -> int:
        """Tokens of each row in `shard`."""
        return self._lengths[shard]

    def tokens(self, ranges: Iterable[Range]) -> int:
        """In all rows of `ranges`."""
        return sum((stop - start) * self._lengths[shard] for shard, start, stop in ranges)

    def ranges(self, start: int, count: int, most: float = math.inf) -> list[Range]:
        """The `count` rows from cursor `start` on, in order, one range for each shard touched.

        Fewer when they are not in the first `most` ranges: few rows, gone around again and again.
        """
        assert min(start, count) >= 0, (start, count)
        found: list[Range] = []
        position = (self._first + start) % self.total
        shard = bisect_right(self._ends, position)
        while count > 0 and len(found) < most:
            begin = self._ends[shard - 1] if shard else 0
            taken = min(count, self._ends[shard] - position)
            found.append((shard, position - begin, position - begin + taken))
            count -= taken
            shard = (shard + 1) % len(self._ends)
            position = self._ends[shard - 1] if shard else 0
        return found


def ranges(shard_rows: Sequence[int], start: int, count: int) -> list[Range]:
    """`RowIndex(shard_rows).ranges(start, count)`, for one-off use.

    >>> ranges([10], 8, 4)
    [(0, 8, 10), (0, 0, 2)]
    """
    return RowIndex(shard_rows).ranges(start, count)
