"""The published vector, which contributions update: the model's parameters, and perhaps shared moments.

Where tasks are stateless, the inner optimizer's second moments belong to no worker. They are published behind the
parameters, a matrix's as the means of its rows and of its columns, whose product is the closest of rank one (Shazeer
and Stern 2018, "Adafactor", section 3). So compression, aggregation, versions, checkpoints and digests apply to them
too. Torch-free.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from barnraise.core.ranges import CHUNK
from barnraise.models.layout import FlatLayout, LayoutEntry

UNIT = 2.0**-8
"""Change of a published moment when the second moment doubles: in an update's norm the moments weigh like parameters.

A usual task moves each by about as much.
"""

LARGEST = 96.0
"""Binary orders of magnitude by which a second moment differs from 1, at most."""

MOST_MOVED = UNIT * LARGEST
"""Largest change of a published moment by one task: from about 1 to the smallest value."""


@dataclass(frozen=True)
class Published:
    """The published vector's layout: parameters, padding, and the shared moments if it `shares` them.

    The parameters of `layout` come first, then zeros up to `start`, a multiple of the codecs' chunks, then the moments
    up to `size`.
    """

    layout: FlatLayout
    shares: bool = False

    @cached_property
    def num_parameters(self) -> int:
        """Return d, the number of parameters."""
        return self.layout.total

    @cached_property
    def start(self) -> int:
        """Return where the shared moments start: at the end, if there are none."""
        return -(-self.num_parameters // CHUNK) * CHUNK if self.shares else self.num_parameters

    @cached_property
    def size(self) -> int:
        """Return the length of the whole vector."""
        return self.start + sum(sum(sides(entry)) for entry, _, _ in self.layout.offsets()) * self.shares

    def moments(self) -> Iterator[tuple[slice, tuple[int, int], slice]]:
        """Yield for each tensor the slice of its parameters, its rows and columns, and the slice of its shared moments.

        A vector has no columns. The moments of rows come before those of columns.
        """
        place = self.start
        for entry, start, stop in self.layout.offsets():
            rows, columns = sides(entry)
            yield slice(start, stop), (rows, columns), slice(place, place + rows + columns)
            place += rows + columns


def sides(entry: LayoutEntry) -> tuple[int, int]:
    """Return the rows and columns of a tensor, whose last axes are merged; a vector has no columns.

    >>> sides(LayoutEntry("a", (3, 4, 5))), sides(LayoutEntry("b", (7,)))
    ((3, 20), (7, 0))
    """
    if len(entry.shape) < 2:
        return entry.size, 0
    return entry.shape[0], entry.size // entry.shape[0]
