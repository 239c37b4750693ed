"""The source of the next rows: several shards at a time, so that a node can continue with one that it already has.

Each shard is a lane, whose rows are assigned in order, all of them once an epoch. Open are the next lanes, as many as
nodes may want to work on separately, up to the same shard once more: no row is assigned a third time before another of
its length has been once, and the rest depends on the order of requests. Rows were shuffled when the dataset was made:
any order of shards is a random one.

Where long rows are behind, for lack of nodes with the memory, lanes of shorter ones stay open beside them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count, starmap

from barnraise.core.types import RowRange
from barnraise.data.ranges import RowIndex

MOST_LANES = 256
"""Lanes of the next rows that are open at a time; at most as many of shorter ones beside."""


FEWEST_TASKS = 4
"""Tasks to a shard, below which there is one lane at a time: a node gains nothing by having a shard."""


def in_lanes(sizes: Sequence[int], task_rows: int, *, ordered: bool = False) -> bool:
    """Return whether tasks of `task_rows` rows take several shards of these sizes side by side, each as a lane."""
    return not ordered and FEWEST_TASKS * task_rows <= sum(sizes) / len(sizes)


class ShardCursors:
    """The lanes of `rows`; `handed` has the assigned rows by shard, all epochs together."""

    def __init__(self, rows: RowIndex, handed: Mapping[int, int]) -> None:
        self.rows, self.handed = rows, handed
        self._turns = {(rows.start + turn) % rows.num_shards: turn for turn in range(rows.num_shards)}
        self._orders = {
            length: [shard for shard in self._turns if rows.lengths[shard] == length]
            for length in sorted(set(rows.lengths))
        }
        self._within = {shard: place for order in self._orders.values() for place, shard in enumerate(order)}
        self._fronts = dict.fromkeys(self._orders, 0)  # the oldest with rows left, over all epochs of a length
        self._epochs = {shard: self.epoch(shard) for shard in self._turns}
        self._open: list[int] = []
        self._most = 0  # for which they were found; 0 when one of them has ended since

    def open(self, most: int) -> list[int]:
        """Return the next `most` lanes, the oldest first, then some of shorter lengths.

        The latter are for nodes that can do no others.
        """
        most = min(max(1, most), MOST_LANES)
        if most != self._most:
            self._advance()
            self._open, self._most = self._next(most), most
            shortest = min(self.rows.lengths[shard] for shard in self._open)
            for length in self._orders:
                if length < shortest:
                    self._open += self._of(length, max(1, most // len(self._orders)))
        return self._open

    def _next(self, most: int) -> list[int]:
        """Return the next lanes in the order of all, from the oldest with rows left."""
        sizes, handed, turns = self.rows.sizes, self.handed, self.rows.num_shards
        epoch, turn = divmod(min(starmap(self._place, self._fronts.items())), turns)
        shard, found = (self.rows.start + turn) % turns, []
        for _ in range(turns):
            if handed.get(shard, 0) < (epoch + 1) * sizes[shard]:
                found.append(shard)
                if len(found) == most:
                    break
            shard, turn = (shard + 1) % turns, turn + 1
            epoch += turn % turns == 0
        return found

    def _of(self, length: int, most: int) -> list[int]:
        """Return the next lanes of one length."""
        order, front = self._orders[length], self._fronts[length]
        found = (order[n % len(order)] for n in range(front, front + len(order)) if self._behind(length, n, {}))
        return [shard for shard, _ in zip(found, range(most), strict=False)]

    def only(self, shard: int) -> frozenset[str]:
        """Return the nodes that may have rows of a lane: all of them."""
        return frozenset()

    def size(self, shard: int) -> int:
        """Return the rows of a lane."""
        return self.rows.sizes[shard]

    def length(self, shard: int) -> int:
        """Return the tokens of a row of a lane."""
        return self.rows.lengths[shard]

    def epoch(self, shard: int) -> int:
        """Return how often all of its rows were assigned."""
        return self.handed.get(shard, 0) // self.rows.sizes[shard]

    def went_on(self, shards: Iterable[int]) -> None:
        """Find the open lanes again where assigned rows of these shards have ended an epoch."""
        for shard in shards:
            epoch = self.epoch(shard)
            if epoch != self._epochs[shard]:
                self._epochs[shard], self._most = epoch, 0

    def take(self, shard: int, wanted: int, most: int) -> tuple[RowRange, ...]:
        """Assign the next `wanted` rows from a lane on, in at most `most` ranges.

        Where it ends, those of the oldest follow, repeatedly where the data has few rows, unless they have another
        length. A lane that is not open any more has ended: the oldest of its length is taken instead.
        """
        taken: dict[int, int] = {}
        found: list[RowRange] = []
        self._advance()
        length = self.rows.lengths[shard]
        order, front = self._orders[length], self._fronts[length]
        epoch = self.handed.get(shard, 0) // self.rows.sizes[shard]
        if epoch * len(order) + self._within[shard] >= front + len(order):
            shard = order[front % len(order)]
        while wanted > 0 and len(found) < most:
            size, done = self.rows.sizes[shard], self.handed.get(shard, 0) + taken.get(shard, 0)
            start = self.rows.place(shard, done)
            rows = min(wanted, size - done % size, size - start)
            found.append(RowRange(shard, start, start + rows))
            taken[shard] = taken.get(shard, 0) + rows
            wanted -= rows
            if (done + rows) % size == 0:
                shard = self._oldest(taken)
                if self.rows.lengths[shard] != length:
                    break
        return tuple(found)

    def _advance(self) -> None:
        for length, front in self._fronts.items():
            while not self._behind(length, front, {}):
                front += 1
            self._fronts[length] = front

    def _behind(self, length: int, number: int, taken: Mapping[int, int]) -> bool:
        """Return whether that shard, of all epochs of a length, has rows left once those `taken` are gone."""
        epoch, place = divmod(number, len(self._orders[length]))
        shard = self._orders[length][place]
        done = self.handed.get(shard, 0) + taken.get(shard, 0)
        return done < (epoch + 1) * self.rows.sizes[shard]

    def _oldest(self, taken: Mapping[int, int]) -> int:
        """Return the next shard of all."""
        behind = {
            length: next(n for n in count(front) if self._behind(length, n, taken))
            for length, front in self._fronts.items()
        }
        length = min(behind, key=lambda length: self._place(length, behind[length]))
        return self._orders[length][behind[length] % len(self._orders[length])]

    def _place(self, length: int, number: int) -> int:
        """Return the place of that shard, of all epochs of a length, in the order of all."""
        epoch, place = divmod(number, len(self._orders[length]))
        return epoch * self.rows.num_shards + self._turns[self._orders[length][place]]
