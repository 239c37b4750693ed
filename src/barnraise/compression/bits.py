"""Small unsigned integers as bit planes: the lowest bits of all of them, then the next higher ones, and so on."""

from __future__ import annotations

import numpy as np

from .base import Array
from .catalog import plane_bytes


def pack(values: Array, width: int) -> Array:
    """Pack `values` [n] (integers below 2**width) into bytes [plane_bytes(n, width)]."""
    planes = [np.packbits((values >> place) & 1, bitorder="little") for place in range(width)]
    return np.concatenate(planes) if planes else np.empty(0, np.uint8)


def unpack(packed: Array, count: int, width: int, start: int = 0, stop: int | None = None) -> Array:
    """Unpack integers `start`, a multiple of 8, to `stop` of the `count` ones in `packed`.

    `width` is at most 16 bits; the result is uint16 [stop - start].
    """
    stop = count if stop is None else stop
    values = np.zeros(stop - start, np.uint16)
    for place, plane in enumerate(packed.reshape(width, plane_bytes(count, 1)) if width else ()):
        bits = np.unpackbits(plane[start // 8 :], count=stop - start, bitorder="little").astype(np.uint16)
        bits <<= np.uint16(place)
        values |= bits
    return values
