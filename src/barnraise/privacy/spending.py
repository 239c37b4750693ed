"""The count behind a budget of differential privacy: steps that each row, or each site, was assigned.

The count rests on assignments alone, and an assignment counts when it is made: its worker may have computed and sent
its result, whatever became of that. So a result that is refused, discarded, voided or late counts, a copy and a
repetition of lost work count again, and a crash between an assignment and its result changes nothing. An assignment
that its node keeps over a restart of the controller (`Reopened`) is the same one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

import msgspec

from barnraise.core.types import RowRange
from barnraise.data.ranges import distinct

ROW, SITE = "row", "site"
"""The units of a budget."""


class Spending(msgspec.Struct):
    """The steps of each unit so far.

    `stops` and `steps` cut the rows of each shard into pieces of equal counts, from row 0 on; later rows have what is
    `carried` to the shard, or 0. `sites` has the steps of each node. `told` is the count that the newest note has.
    """

    unit: str
    most: int = 0  # the largest count of a unit
    told: int = 0
    stops: dict[int, list[int]] = {}
    steps: dict[int, list[int]] = {}
    sites: dict[str, int] = {}
    carried: dict[int, int] = {}

    def assigned(self, node: str, rows: Iterable[RowRange], steps: int) -> None:
        """Count a training task of `steps` steps."""
        if self.unit == SITE:
            self.sites[node] = self.sites.get(node, 0) + 1
            self.most = max(self.most, self.sites[node])
            return
        for some in distinct(rows):
            self._add(some, steps)

    def carry(self, old: int, new: int) -> None:
        """Give all rows of the shard `new` the largest count of the rows of `old`, which may be the same rows."""
        if count := max([self.carried.get(old, 0), *self.steps.get(old, [])]):
            self.carried[new] = count

    def after(self, node: str, rows: Iterable[RowRange], steps: int) -> int:
        """Return the most steps of any unit of such a task once it is assigned."""
        if self.unit == SITE:
            return self.sites.get(node, 0) + 1
        return max((steps + max(self._counts(some)) for some in distinct(rows)), default=0)

    def is_used_up(self, node: str, most: int) -> bool:
        """Return whether a site has no task left of the `most` that its budget has; false where units are rows."""
        return self.unit == SITE and self.sites.get(node, 0) >= most

    def _counts(self, rows: RowRange) -> list[int]:
        """Return the counts of the pieces that the rows touch."""
        stops, steps = self.stops.get(rows.shard, []), self.steps.get(rows.shard, [])
        first, last = bisect_right(stops, rows.start), bisect_right(stops, rows.stop - 1)
        return steps[first : last + 1] if last < len(steps) else [*steps[first:], self.carried.get(rows.shard, 0)]

    def _add(self, rows: RowRange, steps: int) -> None:
        begin, pieces = 0, list[tuple[int, int]]()
        old = zip(self.stops.get(rows.shard, []), self.steps.get(rows.shard, []), strict=True)
        later = self.carried.get(rows.shard, 0)
        for stop, count in [*old, (max(rows.stop, *self.stops.get(rows.shard, [0])), later)]:
            cuts = sorted({cut for cut in (rows.start, rows.stop) if begin < cut < stop} | {stop})
            for cut in cuts:
                if cut > begin:
                    inside = rows.start <= begin and cut <= rows.stop
                    pieces.append((cut, count + steps if inside else count))
                    begin = cut
        merged = [piece for piece, after in zip(pieces, [*pieces[1:], (0, -1)], strict=True) if piece[1] != after[1]]
        self.stops[rows.shard], self.steps[rows.shard] = [stop for stop, _ in merged], [count for _, count in merged]
        self.most = max(self.most, *self._counts(rows))
