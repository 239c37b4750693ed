"""Ranges of the flat parameter vector: fragments, and the ranges that an update covers.

`Ranges` are (start, stop, start, stop, ...). The payload of an update is written over the concatenation of its ranges,
so an element has two numbers: its parameter, and its place in the payload.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from .errors import InputError
from .types import ParameterRange, Ranges

CHUNK = 4096
"""Elements that are never split between fragments, because chunked codecs compress them together."""


def split(num_values: int, count: int) -> tuple[ParameterRange, ...]:
    """Return `count` ranges of nearly equal size, cut at whole chunks; fewer when there are fewer chunks."""
    chunks = -(-num_values // CHUNK)
    cuts = sorted({min(num_values, CHUNK * (chunks * number // count)) for number in range(count + 1)})
    return tuple(ParameterRange(start, stop) for start, stop in pairwise(cuts))


class RangePart(NamedTuple):
    """Parameters [start, stop) that follow each other in a payload, from `place` on."""

    place: int
    start: int
    stop: int

    @property
    def here(self) -> slice:
        """Return the part as a slice of the parameters."""
        return slice(self.start, self.stop)

    @property
    def there(self) -> slice:
        """Return the part as a slice of the payload's elements."""
        return slice(self.place, self.place + self.stop - self.start)


def pieces(ranges: Ranges) -> list[ParameterRange]:
    """Return the ranges one by one.

    >>> pieces((0, 8, 12, 16))
    [(0, 8), (12, 16)]
    """
    return [ParameterRange(*ranges[at : at + 2]) for at in range(0, len(ranges), 2)]


def joined(ranges: Iterable[ParameterRange]) -> Ranges:
    """Return the parameters in any of these ranges; InputError where there are none.

    >>> joined([ParameterRange(8, 12), ParameterRange(0, 4), ParameterRange(4, 6)])
    (0, 6, 8, 12)
    """
    found: list[int] = []
    for start, stop in sorted(ranges):
        if found and start <= found[-1]:
            found[-1] = max(found[-1], stop)
        elif start < stop:
            found += [start, stop]
    if not found:
        raise InputError("an update covers no parameters; give at least one range that is not empty")
    return tuple(found)


def of_numbers(numbers: Iterable[int]) -> Ranges:
    """Return the ranges of these numbers; InputError where there are none.

    >>> of_numbers([7, 2, 3])
    (2, 4, 7, 8)
    """
    return joined(ParameterRange(number, number + 1) for number in numbers)


def numbers_in(ranges: Ranges) -> Iterator[int]:
    """Yield the numbers in the ranges.

    >>> list(numbers_in((2, 4, 7, 8)))
    [2, 3, 7]
    """
    for start, stop in pieces(ranges):
        yield from range(start, stop)


def fault(ranges: Ranges, num_parameters: int) -> str:
    """Return why `ranges` cannot be those of an update of `num_parameters` parameters; empty when they can.

    >>> fault((0, 8, 8, 12), 16), fault((0, 8, 12, 16), 16)
    ('cuts at [0, 8, 8, 12], which do not ascend', '')
    """
    if len(ranges) % 2:
        return f"{len(ranges)} cuts, but each range has a start and a stop"
    if any(low >= high for low, high in pairwise(ranges)):
        return f"cuts at {list(ranges)}, which do not ascend"
    if ranges[-1] > num_parameters:
        return f"ends at {ranges[-1]}, but the vector has {num_parameters} elements"
    return ""


def size(ranges: Ranges) -> int:
    """Return the number of parameters in `ranges`, which is that of the payload's elements.

    >>> size((0, 8, 12, 16))
    12
    """
    return sum(ranges[1::2]) - sum(ranges[::2])


def parts(ranges: Ranges, start: int, stop: int) -> Iterator[RangePart]:
    """Yield the elements [start, stop) of a payload, as parts of the parameters.

    >>> [tuple(part) for part in parts((0, 8, 12, 16), 6, 10)]
    [(6, 6, 8), (8, 12, 14)]
    """
    if len(ranges) == 2:
        yield RangePart(start, ranges[0] + start, ranges[0] + stop)
        return
    place = 0
    for first, last in pieces(ranges):
        begin, end = max(start, place), min(stop, place + last - first)
        if begin < end:
            yield RangePart(begin, first + begin - place, first + end - place)
        place += last - first


def overlap(ranges: Ranges, start: int, stop: int) -> Iterator[RangePart]:
    """Yield the parameters [start, stop) that are in `ranges`, with their places in the payload.

    >>> [tuple(part) for part in overlap((0, 8, 12, 16), 6, 14)]
    [(6, 6, 8), (8, 12, 14)]
    """
    place = 0
    for first, last in pieces(ranges):
        begin, end = max(start, first), min(stop, last)
        if begin < end:
            yield RangePart(place + begin - first, begin, end)
        place += last - first


def place_of(ranges: Ranges, parameter: int) -> int:
    """Return the place of a parameter, one of `ranges`, in the payload.

    >>> place_of((0, 8, 12, 16), 13)
    9
    """
    if len(ranges) == 2:
        return parameter - ranges[0]
    at = bisect_right(ranges, parameter) // 2 * 2
    return size(ranges[:at]) + parameter - ranges[at]


def disjoint(covered: Iterable[Ranges]) -> list[ParameterRange]:
    """Return the largest ranges, in order, that each of `covered` either covers or does not touch; gaps are left out.

    >>> disjoint([(0, 8), (4, 8, 9, 12)])
    [(0, 4), (4, 8), (9, 12)]
    """
    distinct = {piece for ranges in set(covered) for piece in pieces(ranges)}
    cuts = sorted({cut for piece in distinct for cut in piece})
    found = [ParameterRange(start, stop) for start, stop in pairwise(cuts)]
    return [inner for inner in found if any(covers(outer, inner) for outer in distinct)]


def covers(outer: Ranges, inner: ParameterRange) -> bool:
    """Return whether all of `inner` lies in one of the ranges of `outer`.

    >>> covers((0, 8, 12, 16), ParameterRange(12, 14)), covers((0, 8, 12, 16), ParameterRange(6, 14))
    (True, False)
    """
    return any(start <= inner.start and inner.stop <= stop for start, stop in pieces(outer))


def moved(covered: Sequence[Ranges]) -> Ranges:
    """Return the parameters that a version moves, made of updates of `covered`, which its delta is written over.

    Where each update covers one range, they are those from the first to the last, gaps included; a gap's elements are
    zeros. Updates of several ranges have large gaps, which are left out.

    >>> moved([(0, 4), (8, 12)]), moved([(0, 4, 100, 104), (8, 12)])
    ((0, 12), (0, 4, 8, 12, 100, 104))
    """
    if all(len(ranges) == 2 for ranges in covered):
        return min(ranges[0] for ranges in covered), max(ranges[1] for ranges in covered)
    return joined(piece for ranges in covered for piece in pieces(ranges))
