"""Words of b bits in b bits each, in planes of 16, 8, 4, 2 and 1 bits: those whose widths sum to b, the lowest first.

A plane of 16 or 8 bits has an integer for each word. In a plane of fewer bits a byte holds several words, the first of
which has the lowest bits: the words are cut into as many runs of equal length, and a byte holds one of each run. All
steps then work on runs, which processors do many at once.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from barnraise.core.errors import PayloadError

Array: TypeAlias = NDArray[Any]

WIDTHS = (16, 8, 4, 2, 1)


def packed_bytes(count: int, bits: int) -> int:
    """Return the bytes of `count` words of `bits` bits, at most 32.

    >>> packed_bytes(1000, 15)
    1875
    """
    return sum(-(-count * width // 8) for width in _planes(bits))


def pack(words: Array, bits: int) -> bytes:
    """Return the bytes of words (uint16 or uint32) below 2**bits."""
    if bits == 8 * words.dtype.itemsize:
        return words.tobytes()
    out, shift = [], 0
    for width in _planes(bits):
        part = (words >> shift).astype("<u2" if width == 16 else np.uint8)  # the lowest bits remain
        shift += width
        out.append((part if width >= 8 else _folded(part, width)).tobytes())
    return b"".join(out)


def unpack(packed: bytes | memoryview, count: int, bits: int, dtype: np.dtype[Any]) -> Array:
    """Return `count` words of `bits` bits; PayloadError for another length, or for bits that no word has."""
    if len(packed) != packed_bytes(count, bits):
        raise PayloadError(
            f"masks: {len(packed)} bytes of words, but {count} of {bits} bits take {packed_bytes(count, bits)}"
        )
    if bits == 8 * dtype.itemsize:
        return np.frombuffer(packed, dtype).copy()
    words, shift, start = np.zeros(count, dtype), 0, 0
    for width in _planes(bits):
        num_bytes = -(-count * width // 8)
        plane = np.frombuffer(
            packed, "<u2" if width == 16 else np.uint8, offset=start, count=num_bytes // max(1, width // 8)
        )
        part = (plane if width >= 8 else _unfolded(plane, count, width)).astype(dtype)
        part <<= dtype.type(shift)
        words |= part
        shift, start = shift + width, start + num_bytes
    return words


def _planes(bits: int) -> list[int]:
    """Return the widths of the planes; 32 bits are 16 twice."""
    return [16] * (bits // 16) + [width for width in WIDTHS[1:] if bits % 16 & width]


def _folded(part: Array, width: int) -> Array:
    """Return bytes with the lowest `width` bits of uint8 `part` [n], 8 / width of them each."""
    each = 8 // width
    runs = np.zeros((each, -(-part.size // each)), np.uint8)
    runs.reshape(-1)[: part.size] = part & ((1 << width) - 1)
    out: Array = runs[0].copy()
    for place in range(1, each):
        out |= runs[place] << (width * place)
    return out


def _unfolded(plane: Array, count: int, width: int) -> Array:
    """Return `count` numbers of `width` bits (uint8) from `_folded` bytes."""
    each = 8 // width
    runs: Array = np.empty((each, plane.size), np.uint8)
    for place in range(each):
        np.right_shift(plane, width * place, out=runs[place])
    runs &= (1 << width) - 1
    if runs.reshape(-1)[count:].any():
        raise PayloadError("masks: the words end in bits that belong to none")
    return runs.reshape(-1)[:count]
