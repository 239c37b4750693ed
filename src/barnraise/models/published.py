"""What a run publishes, and what contributions are updates of: the model's parameters, and what tasks share besides.

Where tasks are stateless, the inner optimizer's second moments are nobody's own. They are published behind the
parameters, a matrix's as the means of its rows and of its columns, whose product is the closest of rank one (Shazeer
and Stern 2018, "Adafactor", section 3). So whatever happens to an update (compression, aggregation, versions,
checkpoints, digests) happens to them too. Torch-free.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from barnraise.core.ranges import CHUNK
from barnraise.models.layout import FlatLayout, LayoutEntry

UNIT = 2.0**-8
"""A second moment twice as large is so much more, as it is published: so in an update's norm the moments weigh like
parameters, each of which a usual task moves by about as much."""

LARGEST = 96.0
"""Binary orders of magnitude from 1 that a second moment is away at most."""

MOST_MOVED = UNIT * LARGEST
"""By how much a task moves a published moment at most: from about 1 to the least that there is."""


@dataclass(frozen=True)
class Published:
    """The vector: the parameters of `layout`, then zeros up to `start`, where codecs begin a chunk anew, then the
    shared moments, if it `shares` them, up to its `size`."""

    layout: FlatLayout
    shares: bool = False

    @cached_property
    def num_parameters(self) -> int:
        """d."""
        return self.layout.total

    @cached_property
    def start(self) -> int:
        """Where the shared moments start: at the end, if there are none."""
        return -(-self.num_parameters // CHUNK) * CHUNK if self.shares else self.num_parameters

    @cached_property
    def size(self) -> int:
        """All of it."""
        return self.start + sum(sum(sides(entry)) for entry, _, _ in self.layout.offsets()) * self.shares

    def moments(self) -> Iterator[tuple[slice, tuple[int, int], slice]]:
        """Of each tensor: the parameters, how many rows and columns they are (no columns: a vector), and where its
        shared moments are, the rows' before the columns'."""
        place = self.start
        for entry, start, stop in self.layout.offsets():
            rows, columns = sides(entry)
            yield slice(start, stop), (rows, columns), slice(place, place + rows + columns)
            place += rows + columns


def sides(entry: LayoutEntry) -> tuple[int, int]:
    """Rows and columns of a tensor, whose last axes are one; of a vector it has no columns.

    >>> sides(LayoutEntry("a", (3, 4, 5))), sides(LayoutEntry("b", (7,)))
    ((3, 20), (7, 0))
    """
    if len(entry.shape) < 2:
        return entry.size, 0
    return entry.shape[0], entry.size // entry.shape[0]
