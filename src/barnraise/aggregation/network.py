"""Sorting networks over rows: each comparator is one minimum and one maximum of whole rows.

A fixed sequence of comparators needs no branches and no index arrays, so on blocks that fit the cache it beats sorting
each column. Batcher's odd-even merge sort (Knuth, The Art of Computer Programming 3, algorithm 5.2.2M) is pruned
backwards to the rows that the caller needs: comparators that only reorder values of one group are dropped, and of one
whose minimum or maximum is unused, half is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]


class Comparator(NamedTuple):
    """Puts the minimum of two rows at `low` and the maximum at `high`, where they are needed."""

    low: int
    high: int
    keep_minimum: bool
    keep_maximum: bool


@lru_cache(maxsize=256)
def sorting(n: int) -> tuple[Comparator, ...]:
    """Return the network that sorts n rows."""
    return tuple(Comparator(low, high, True, True) for low, high in _batcher(n))


@lru_cache(maxsize=256)
def trimming(n: int, trimmed: int) -> tuple[Comparator, ...]:
    """Return the network after which rows trimmed .. n-trimmed-1 hold the middle values, unordered."""
    needed = [trimmed <= row < n - trimmed for row in range(n)]
    group = [0 if row < trimmed else 1 if needed[row] else 2 for row in range(n)]
    kept: list[Comparator] = []
    for low, high in reversed(_batcher(n)):
        if group[low] == group[high]:
            continue  # all later comparators treat both rows alike
        kept.append(Comparator(low, high, needed[low], needed[high]))
        needed[low] = needed[high] = True
        group[low] = group[high] = 3 + len(kept)  # the comparator itself treats its inputs alike
    return tuple(reversed(kept))


def apply(network: Sequence[Comparator], block: Array) -> list[Array]:
    """Apply the network to the rows of `block` [n, c] and return them; the block's contents are overwritten."""
    rows = list(block)
    spare = np.empty_like(rows[0])
    for low, high, keep_minimum, keep_maximum in network:
        a, b = rows[low], rows[high]
        if not keep_minimum:
            np.maximum(a, b, out=b)
        elif not keep_maximum:
            np.minimum(a, b, out=a)
        else:
            np.minimum(a, b, out=spare)
            np.maximum(a, b, out=b)
            rows[low], spare = spare, a
    return rows


def missing_as_infinite(block: Array) -> None:
    """Replace NaN by infinity in place: it would spread through minimum and maximum, infinity is trimmed."""
    np.fmin(block, np.inf, out=block)


def _batcher(n: int) -> list[tuple[int, int]]:
    pairs = []
    p = 1
    while p < n:
        k = p
        while k >= 1:
            for j in range(k % p, n - k, 2 * k):
                for i in range(j, min(j + k, n - k)):
                    if i // (2 * p) == (i + k) // (2 * p):
                        pairs.append((i, i + k))
            k //= 2
        p *= 2
    return pairs
