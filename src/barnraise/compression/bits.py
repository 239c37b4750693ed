"""Small unsigned integers as bit planes: the lowest bits of all of them, then the next higher ones, and so on."""

from __future__ import annotations

import numpy as np

from .base import Array
from .catalog import plane_bytes


def pack(values: Array, width: int) -> Array:
    """Pack `values` [n] (integers below 2**width) into bytes [plane_bytes(n, width)]."""
    planes = []
    for place in range(width):
        if place % 8 == 0:
            eight = (values >> place).astype(np.uint8)
        planes.append(np.packbits(eight & np.uint8(1 << place % 8), bitorder="little"))
    return np.concatenate(planes) if planes else np.empty(0, np.uint8)


def unpack(packed: Array, count: int, width: int, start: int = 0, stop: int | None = None) -> Array:
    """Unpack integers `start`, a multiple of 8, to `stop` of the `count` ones in `packed`.

    `width` is at most 16 bits; the result is uint16 [stop - start].
    """
    stop = count if stop is None else stop
    values, eight = np.zeros(stop - start, np.uint16), np.zeros(stop - start, np.uint8)
    for place, plane in enumerate(packed.reshape(width, plane_bytes(count, 1)) if width else ()):
        bits = np.unpackbits(plane[start // 8 :], count=stop - start, bitorder="little")
        eight |= bits << np.uint8(place % 8)
        if place % 8 == 7 or place == width - 1:
            values |= eight.astype(np.uint16) << np.uint16(place - place % 8)
            eight[:] = 0
    return values
