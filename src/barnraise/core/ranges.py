"""Ranges of the flat parameter vector: fragments, and the overlap of ranges."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from .types import ParameterRange

CHUNK = 4096
"""Elements that are never split between fragments, because chunked codecs compress them together."""


def split(num_values: int, count: int) -> tuple[ParameterRange, ...]:
    """Return `count` ranges of nearly equal size, cut at whole chunks; fewer when there are fewer chunks."""
    chunks = -(-num_values // CHUNK)
    cuts = sorted({min(num_values, CHUNK * (chunks * number // count)) for number in range(count + 1)})
    return tuple(ParameterRange(start, stop) for start, stop in pairwise(cuts))


def disjoint(ranges: Iterable[ParameterRange]) -> list[ParameterRange]:
    """Return the largest ranges, in order, that each of `ranges` either covers or does not touch; gaps are left out.

    >>> [
    ...     tuple((r.start, r.stop))
    ...     for r in disjoint([ParameterRange(0, 8), ParameterRange(4, 8), ParameterRange(9, 12)])
    ... ]
    [(0, 4), (4, 8), (9, 12)]
    """
    distinct = set(ranges)
    cuts = sorted({outer.start for outer in distinct} | {outer.stop for outer in distinct})
    found = [ParameterRange(start, stop) for start, stop in pairwise(cuts)]
    return [inner for inner in found if any(covers(outer, inner) for outer in distinct)]


def covers(outer: ParameterRange, inner: ParameterRange) -> bool:
    """Return whether all of `inner` lies in `outer`."""
    return outer.start <= inner.start and inner.stop <= outer.stop
