"""Words of b bits in exactly b bits each: whole low bytes first, then the bits above them as bit planes."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from barnraise.compression import bits as planes
from barnraise.compression.catalog import plane_bytes
from barnraise.core.errors import PayloadError

Array: TypeAlias = NDArray[Any]


def packed_bytes(count: int, bits: int) -> int:
    """Return the bytes of `count` words of `bits` bits.

    >>> packed_bytes(1000, 15)
    1875
    """
    return count * (bits // 8) + plane_bytes(count, bits % 8)


def pack(words: Array, bits: int) -> bytes:
    """Return the bytes of words (uint16 or uint32) below 2**bits."""
    whole = bits // 8
    if bits == 8 * words.dtype.itemsize:
        return words.tobytes()
    octets = words.view(np.uint8).reshape(words.size, words.dtype.itemsize)
    low = np.ascontiguousarray(octets[:, :whole])
    return low.tobytes() + (planes.pack(octets[:, whole], bits % 8).tobytes() if bits % 8 else b"")


def unpack(packed: bytes | memoryview, count: int, bits: int, dtype: np.dtype[Any]) -> Array:
    """Return `count` words of `bits` bits; PayloadError for another length, or for bits that no word has."""
    if len(packed) != packed_bytes(count, bits):
        raise PayloadError(
            f"masks: {len(packed)} bytes of words, but {count} of {bits} bits take {packed_bytes(count, bits)}"
        )
    if bits == 8 * dtype.itemsize:
        return np.frombuffer(packed, dtype).copy()
    whole, rest = bits // 8, bits % 8
    words = np.zeros(count, dtype)
    octets = words.view(np.uint8).reshape(count, dtype.itemsize)
    octets[:, :whole] = np.frombuffer(packed, np.uint8, count * whole).reshape(count, whole)
    if rest:
        above = np.frombuffer(packed, np.uint8, offset=count * whole)
        octets[:, whole] = planes.unpack(above, count, rest)
        spare = -count % 8
        if spare and (above.reshape(rest, -1)[:, -1] >> (8 - spare)).any():
            raise PayloadError("masks: the words end in bits that belong to none")
    return words
