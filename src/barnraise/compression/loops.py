"""Loops over vectors that numba compiles: payloads and decoded vectors equal those of numpy to the last bit.

An offset may differ from torch's by rounding. The loops check no bounds: the caller passes arrays that fit. Threads run
them side by side. Their types are declared, so that the import compiles them or loads them from numba's cache: an error
of the cache is one of the import.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

from .base import Array

_INFINITY = np.uint32(0x7F800000)
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_NEAR = np.uint32(1 << 19)  # 3 to 6% of a magnitude: how far below a row's limit that of the next one is looked for
_FURTHER = np.uint32(1 << 22)

_FLOATS = types.Array(types.float32, 1, "C", readonly=True)
_OUT = types.Array(types.float32, 1, "C")
_WORDS = types.Array(types.uint32, 2, "C", readonly=True)
_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_PAIRS = types.Array(types.uint64, 1, "C", readonly=True)
_SCALES = types.Array(types.float32, 1, "C", readonly=True, aligned=False)
_PLACES, _CHOSEN = types.Array(types.uint16, 2, "C"), types.Array(types.uint32, 2, "C")


@njit(types.boolean(_WORDS, _PLACES, _CHOSEN), nogil=True, cache=True)
def choose(words: Array, places: Array, chosen: Array) -> bool:
    """Write the `places` (uint16) of the largest magnitudes of each row, ascending, and the `chosen` words there.

    `words` [n, chunk] and `chosen` [n, kept] are float32 seen as uint32. Ties are resolved to the lowest places. False
    when an element is not finite. A row's candidates are those not far below the limit of the row before; bisection
    finds the limit among them.
    """
    rows, chunk = words.shape
    kept = places.shape[1]
    found, sizes = np.empty(chunk + 1, np.int32), np.empty(chunk + 1, np.uint32)
    least = np.uint32(0)
    for number in range(rows):
        row = words[number]
        least -= min(least, _NEAR)
        further = _FURTHER
        while True:
            count = np.int64(0)
            for place in range(chunk):
                found[count] = place
                count += np.int64((row[place] & _MAGNITUDE) >= least)
            if count >= kept:
                break
            least -= min(least, further)
            further *= np.uint32(2)
        most = np.uint32(0)
        for each in range(count):
            sizes[each] = row[found[each]] & _MAGNITUDE
            most = max(most, sizes[each])
        if most >= _INFINITY:
            return False
        over, num_least = most + np.uint32(1), np.uint32(count)  # num_least are >= least, fewer than kept >= over
        while num_least > kept and over - least > 1:
            middle = least + (over - least) // np.uint32(2)
            above = np.uint32(0)
            for each in range(count):
                above += np.uint32(sizes[each] >= middle)
            if above >= kept:
                least, num_least = middle, above
            else:
                over = middle
        room, taken = np.int64(kept), 0  # for those that equal least: the last of them may be too many
        if num_least > kept:
            for each in range(count):
                room -= np.int64(sizes[each] > least)
        for each in range(count):
            size = sizes[each]
            if size > least or (size == least and room > 0):
                room -= np.int64(size == least)
                places[number, taken] = found[each]
                chosen[number, taken] = row[found[each]]
                taken += 1
    return True


@njit(types.void(_BYTES, _SCALES, _PAIRS, _OUT), nogil=True, cache=True)
def from_nibbles(stored: Array, scales: Array, table: Array, out: Array) -> None:
    """Write the pair of each byte of `stored` as `table` has it, times its block's scale, into `out` (float32).

    The pairs of `table` are seen as uint64. `out` is whole blocks of an even number of elements, one for each scale.
    """
    pairs, half = out.view(np.uint64), out.size // scales.size // 2
    for number in range(scales.size):
        scale, first = scales[number], number * half
        source, target = stored[first : first + half], pairs[first : first + half]
        for place in range(half):
            target[place] = table[source[place]]
        block = out[2 * first : 2 * (first + half)]
        for place in range(block.size):
            block[place] *= scale


@njit(types.void(_FLOATS, _FLOATS, _OUT, _FLOATS, _FLOATS), nogil=True, cache=True)
def offset(there: Array, start: Array, here: Array, residual: Array, factors: Array) -> None:
    """Overwrite `here` with (there + share * (here - start) - keep * residual - here) * rest; all are float32.

    `factors` are share, keep and rest; where keep is 0 `residual` may be any array.
    """
    share, keep, rest = factors
    if keep:
        for place in range(here.size):
            own = there[place] + share * (here[place] - start[place]) - keep * residual[place]
            here[place] = (own - here[place]) * rest
    else:
        for place in range(here.size):
            own = there[place] + share * (here[place] - start[place])
            here[place] = (own - here[place]) * rest
