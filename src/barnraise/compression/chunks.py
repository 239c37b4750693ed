"""The k largest of each chunk of a vector, and their places in about log2(chunk / k) + 2 bits each.

The vector is cut into rows of `chunk` elements, the last one filled up with zeros. Places are written as Elias (1974)
and Fano (1971) write increasing sequences: the low bits of each place unchanged, the high bits in unary, in one bitmap
of k ones. For 64 of 4096 that is 8 bits a place where a plain index takes 12, and every row takes the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from barnraise.core.errors import PayloadError

from . import bits
from .base import Array
from .catalog import bitmap_bits, low_bits, plane_bytes

_INFINITY = np.uint32(0x7F800000)
_MAGNITUDE = np.uint32(0x7FFFFFFF)
NOT_FINITE = "a vector with elements that are not finite"
_SPAN = 1 << 16
_ROWS = 1 << 11  # rows whose places are unpacked at a time: a multiple of 8


@dataclass(frozen=True)
class Grid:
    """The chunks of a vector of `size` elements, and the number of kept ones in each row."""

    size: int
    chunk: int
    kept: int

    @property
    def rows(self) -> int:
        return -(-self.size // self.chunk)

    @property
    def count(self) -> int:
        """Return the number of elements kept in all."""
        return self.rows * self.kept

    def spans(self, values: Array, length: int = _SPAN) -> Iterator[tuple[int, Array]]:
        """Yield `values` [size] as blocks of whole rows [n, chunk], each with its first row's number.

        A block has `length` elements at most, or one row.
        """
        rows, full = max(1, length // self.chunk), self.size // self.chunk
        for first in range(0, full, rows):
            last = min(first + rows, full)
            yield first, values[first * self.chunk : last * self.chunk].reshape(-1, self.chunk)
        if full < self.rows:
            padded = np.zeros((1, self.chunk), np.float32)
            padded[0, : self.size - full * self.chunk] = values[full * self.chunk :]
            yield full, padded


def choose(rows: Array, places: Array, chosen: Array, compiled: ModuleType | None = None) -> None:
    """Write the `places` (uint16) of the largest magnitudes of each of `rows`, ascending, and the `chosen` values.

    `rows` are float32 [n, chunk], the other two [n, kept]. Ties are resolved to the lowest places. PayloadError when an
    element is not finite.
    """
    if compiled is None:
        found = largest(rows, places.shape[1])
        places[:] = found
        found += np.arange(len(rows))[:, None] * rows.shape[1]
        np.take(rows.reshape(-1), found, out=chosen, mode="clip")  # clip: without a buffer
    elif not compiled.choose(rows.view(np.uint32), places, chosen.view(np.uint32)):
        raise PayloadError(NOT_FINITE)


def largest(rows: Array, kept: int) -> Array:
    """Return the places of the `kept` largest magnitudes of each of `rows`, ascending, int64 [n, kept].

    `rows` are float32 [n, chunk]. Ties are resolved to the lowest places. PayloadError when an element is not finite.
    """
    magnitudes = rows.view(np.uint32) & _MAGNITUDE  # ordered like the numbers
    middle = rows.shape[1] - kept
    parted = magnitudes.copy()
    parted.partition(middle, axis=1)
    if parted[:, middle:].max() >= _INFINITY:
        raise PayloadError(NOT_FINITE)
    least = parted[:, middle, None]
    chosen = magnitudes >= least
    flat = _marked(chosen)
    if flat.size > len(rows) * kept:
        crowded = np.flatnonzero(np.count_nonzero(chosen, axis=1) > kept)
        above = magnitudes[crowded] > least[crowded]
        ties = chosen[crowded] & ~above
        room = kept - np.count_nonzero(above, axis=1)[:, None]
        chosen[crowded] = above | (ties & (np.cumsum(ties, axis=1) <= room))
        flat = _marked(chosen)
    flat &= rows.shape[1] - 1  # chunks are a power of two
    places: Array = flat.reshape(-1, kept)
    return places


def _marked(chosen: Array) -> Array:
    """Return the indices of the true elements of `chosen` (bool), few of many: eight are looked at together."""
    if chosen.size % 8:
        return np.flatnonzero(chosen)
    eights = chosen.reshape(-1).view(np.uint64)
    some = np.flatnonzero(eights != 0)
    inside = np.flatnonzero(eights[some].view(np.bool_))
    found: Array = (some[inside >> 3] << 3) + (inside & 7)
    return found


class Places:
    """Writes and reads the places [rows, kept] of a grid."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.low_bits = low_bits(grid.chunk, grid.kept)
        self.row_bits = bitmap_bits(grid.chunk, grid.kept)
        self.bitmap_bytes = plane_bytes(grid.rows * self.row_bits, 1)

    def pack(self, places: Array, body: Array) -> None:
        """Write `places` (uint16) to `body`, whose length is that of `places_bytes`."""
        grid = self.grid
        bitmap = np.zeros(grid.rows * self.row_bits, np.uint8)
        row_starts = np.arange(grid.rows)[:, None] * self.row_bits
        bitmap[(places >> np.uint16(self.low_bits)) + (row_starts + np.arange(grid.kept))] = 1
        body[: self.bitmap_bytes] = np.packbits(bitmap, bitorder="little")
        body[self.bitmap_bytes :] = bits.pack(places.reshape(-1) & np.uint16((1 << self.low_bits) - 1), self.low_bits)

    def unpack(self, body: Array) -> Array:
        """Return the places, ascending in each row, uint16 [rows, kept].

        In a last row of fewer than `kept` elements, some are beyond the vector's end. PayloadError for bytes that
        `pack` never writes.
        """
        grid = self.grid
        places = np.empty((grid.rows, grid.kept), np.uint16)
        for first in range(0, grid.rows, _ROWS):
            self._unpack_rows(body, first, places[first : first + _ROWS])
        left = grid.size - (grid.rows - 1) * grid.chunk  # elements of the last row
        if grid.count and places[-1, -1] >= max(left, grid.kept):
            raise PayloadError(f"an index is not below {grid.size}")
        return places

    def _unpack_rows(self, body: Array, first: int, out: Array) -> None:
        """Write the places of the rows from `first` on into `out` [n, kept]."""
        rows, kept = out.shape
        bitmap = np.unpackbits(
            body[first * self.row_bits // 8 : self.bitmap_bytes], count=rows * self.row_bits, bitorder="little"
        )
        ones: Array = np.flatnonzero(bitmap.view(bool))
        if ones.size != out.size:
            raise PayloadError(f"the payload marks {ones.size} places, but must mark {out.size}")
        ones = ones.reshape(rows, kept)
        row_starts = np.arange(rows)[:, None] * self.row_bits
        if (ones[:, :1] < row_starts).any() or (ones[:, -1:] >= row_starts + self.row_bits).any():
            raise PayloadError(f"the payload does not mark {kept} places in each chunk")
        # a one's position, less this constant, is its place's high part
        places: Array = (ones - (row_starts + np.arange(kept))) << self.low_bits
        low = bits.unpack(
            body[self.bitmap_bytes :], self.grid.count, self.low_bits, first * kept, (first + rows) * kept
        )
        places += low.reshape(rows, kept)
        if (places[:, -1] >= self.grid.chunk).any():
            raise PayloadError(f"a place in a chunk is not below {self.grid.chunk}")
        if not (places[:, 1:] > places[:, :-1]).all():
            raise PayloadError("the payload's indices are not strictly increasing")
        out[:] = places
