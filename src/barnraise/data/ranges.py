"""The shards of a dataset, and their numbers of rows.

No numpy, no torch: a state machine calls this.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

from barnraise.core.types import RowRange


class RowIndex:
    """The rows of all shards in a circular order.

    `sizes` are the rows of the shards, `total` those of all, and `lengths` the tokens of a row in each (1 where they
    are not given). Row `first` of all comes first, `offset` rows into shard `start`, and the shards follow in order.
    Rows were shuffled when the dataset was made, so a contiguous range is a random sample: of all rows, or of a stage
    where they are `ordered`. Without shards, rows stay with their nodes.
    """

    __slots__ = ("lengths", "offset", "ordered", "sizes", "start", "total")

    def __init__(
        self, sizes: Sequence[int], first: int = 0, *, lengths: Sequence[int] = (), ordered: bool = False
    ) -> None:
        assert all(rows > 0 for rows in sizes), "a shard without rows"
        assert not lengths or len(lengths) == len(sizes), "a length for each shard"
        self.sizes, self.lengths = tuple(sizes), tuple(lengths) or (1,) * len(sizes)
        self.ordered = ordered
        ends = list(accumulate(sizes))
        self.total = ends[-1] if ends else 0
        first %= max(1, self.total)
        self.start = bisect_right(ends, first)
        self.offset = first - (ends[self.start - 1] if self.start else 0)

    @property
    def num_shards(self) -> int:
        return len(self.sizes)

    def place(self, shard: int, done: int) -> int:
        """Return the row of a shard that comes after `done` others of it, in a cycle.

        >>> index = RowIndex([4, 3], first=5)
        >>> [index.place(1, done) for done in range(4)], index.place(0, 1)
        ([1, 2, 0, 1], 1)
        """
        return (done + (self.offset if shard == self.start else 0)) % self.sizes[shard]


def distinct(rows: Iterable[RowRange]) -> list[RowRange]:
    """Return ranges that hold each of these rows once, by shard and start.

    >>> distinct([RowRange(1, 4, 8), RowRange(0, 0, 3), RowRange(1, 6, 9), RowRange(0, 3, 5)])
    [RowRange(shard=0, start=0, stop=5), RowRange(shard=1, start=4, stop=9)]
    """
    found: list[RowRange] = []
    for some in sorted(rows, key=lambda some: (some.shard, some.start)):
        if found and found[-1].shard == some.shard and some.start <= found[-1].stop:
            last = found.pop()
            some = RowRange(last.shard, last.start, max(last.stop, some.stop))
        found.append(some)
    return found
