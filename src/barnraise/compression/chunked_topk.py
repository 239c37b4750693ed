"""Top-k in chunks: the same number of elements from each stretch of the vector, so that each layer has its share."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from torch import Tensor

from barnraise.core.threads import SPAN

from .base import Array, Encoded, Header, Sections, SparseCodec
from .catalog import half_bytes, kept
from .chunks import Grid, Places, choose
from .device_selection import select
from .fast import loops
from .fp16 import check_half, from_half, largest_half, shared_exponent, to_half


class ChunkedCodec(SparseCodec):
    """Keeps k = round(ratio * chunk) elements of each chunk.

    Body: the bytes of `pack_values`, then the places (see `chunks`). The header's count is k. A subclass says how the
    kept values are written.
    """

    selects_on_devices = True

    def __init__(self, ratio: float, chunk: int) -> None:
        super().__init__(ratio=ratio, chunk=chunk)
        self.chunk, self.kept = chunk, kept(ratio, chunk)

    def count(self, size: int, version: int) -> int:
        return self.kept

    def pack(self, values: Array, body: Array, count: int) -> int:
        grid = Grid(values.size, self.chunk, self.kept)
        places = np.empty((grid.rows, self.kept), np.uint16)
        chosen = np.empty((grid.rows, self.kept), np.float32)

        compiled = loops(values.size)

        def each(span: tuple[int, Array]) -> None:
            first, rows = span
            choose(rows, places[first : first + len(rows)], chosen[first : first + len(rows)], compiled)

        self.crew.each(each, grid.spans(values, SPAN) if compiled else grid.spans(values))
        return self._write(grid, places, chosen, body)

    def encode(self, vector: Tensor, version: int = 0) -> Encoded:
        if vector.device.type == "cpu":
            return super().encode(vector, version)
        return self.encode_there(vector, version)

    def encode_there(self, vector: Tensor, version: int = 0) -> Encoded:
        """Encode a 1-D float32 tensor, whose kept elements are selected on its device."""
        places, chosen = select(vector, self.chunk, self.kept)
        grid = Grid(vector.numel(), self.chunk, self.kept)
        return self.writer(grid.size, version).by(lambda body: self._write(grid, places, chosen, body))

    def _write(self, grid: Grid, places: Array, chosen: Array, body: Array) -> int:
        """Write the places (uint16) and values of all kept elements, [rows, k], and return the header's exponent."""
        values_end = self.value_bytes(grid)
        Places(grid).pack(places, body[values_end:])
        return self.pack_values(chosen, body[:values_end])

    def parse(self, header: Header, body: Array) -> Sections:
        grid = Grid(header.size, self.chunk, self.kept)
        values_end = self.value_bytes(grid)
        values = self.parse_values(grid, header.exponent, body[:values_end])
        return Places(grid).unpack(body[values_end:]), *values

    def entries(self, sections: Sections, start: int, stop: int) -> Sections:
        first, last = start // self.chunk, -(-stop // self.chunk)
        row_starts = np.arange(first, last)[:, None] * self.chunk - start
        places = (sections[0][first:last] + row_starts).reshape(-1)
        begin, end = np.searchsorted(places, [0, stop - start])  # a short last row has places beyond the end
        return places[begin:end], self.row_values(sections[1:], first, last)[begin:end]

    @abstractmethod
    def value_bytes(self, grid: Grid) -> int:
        """Return the bytes of the values of a whole payload."""

    @abstractmethod
    def pack_values(self, chosen: Array, body: Array) -> int:
        """Write `chosen` (float32 [rows, k]) to `body`, return the header's exponent."""

    @abstractmethod
    def parse_values(self, grid: Grid, exponent: int, body: Array) -> Sections:
        """Return the sections for `row_values`; PayloadError for bytes that `pack_values` never writes."""

    @abstractmethod
    def row_values(self, sections: Sections, first: int, last: int) -> Array:
        """Return the values of rows `first` to `last`, float32 [(last - first) * k]."""


class ChunkedTopK(ChunkedCodec):
    """Values: rows * k float16, to be multiplied by 2**exponent of the header (see `fp16`).

    Error: an omitted element of a chunk is no larger than the least kept one; kept values have fp16's error.
    """

    name = "chunked_topk"
    tag = b"ctk "

    def value_bytes(self, grid: Grid) -> int:
        return half_bytes(grid.rows, grid.count)

    def pack_values(self, chosen: Array, body: Array) -> int:
        exponent = shared_exponent(chosen)
        to_half(chosen.reshape(-1), exponent, body.view("<f2"))
        return exponent

    def parse_values(self, grid: Grid, exponent: int, body: Array) -> Sections:
        check_half(body.view("<f2"), exponent)
        return body.view("<f2"), np.array(exponent)

    def row_values(self, sections: Sections, first: int, last: int) -> Array:
        halves, exponent = sections
        values = np.empty((last - first) * self.kept, np.float32)
        from_half(halves[first * self.kept : last * self.kept], int(exponent), values)
        return values

    def largest(self, sections: Sections) -> float:
        _, halves, exponent = sections
        return largest_half(halves, int(exponent))
