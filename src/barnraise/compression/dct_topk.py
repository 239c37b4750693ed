"""Top-k of cosine coefficients, where neighbouring elements change together.

As DeMo sends them (Peng, Quesnelle and Kingma, 2024, "Decoupled Momentum Optimization", section 3.1): a few
coefficients then carry more than a few elements. DeMo transforms tiles of each weight matrix; a flat vector has no
matrices, so each run of 4096 elements is taken as a tile of 64 x 64, which is the same where a row of the matrix has 64
elements.
"""

from __future__ import annotations

import numpy as np
from scipy import fft

from barnraise.core.errors import PayloadError

from .base import Array, Codec, Header, Sections
from .chunked_topk import ChunkedTopK

_SIDE = 64
_TILE = _SIDE * _SIDE
_SPAN = 16 * _TILE
_HIGHEST_EXPONENT = 99  # sums of 4096 coefficients stay finite
_LARGEST = np.float32(2.0**107)  # a tile of these has one coefficient, 64 times as large


class DCTTopK(Codec):
    """Body: that of `chunked_topk`, of the orthonormal DCT-II coefficients of 64 x 64 tiles.

    The last tile is filled up with zeros, and the header's size is that of the vector. Elements beyond 2**107 are cut
    to that. Error: the L2 norm of the omitted coefficients, plus fp16's; not bit for bit the same on every machine.
    """

    name = "dct_topk"
    tag = b"dct "
    multiple = _SPAN

    def __init__(self, ratio: float) -> None:
        super().__init__(ratio=ratio)
        self._inner = ChunkedTopK(ratio, _TILE)

    def count(self, size: int, version: int) -> int:
        return self._inner.kept

    def pack(self, values: Array, body: Array, count: int) -> int:
        coefficients = np.empty(_padded(values.size), np.float32)
        for start in range(0, values.size, _SPAN):
            tiles, span = coefficients[start : start + _SPAN], values[start : start + _SPAN]
            if not np.isfinite(span).all():
                raise PayloadError("a vector with elements that are not finite")
            tiles[: span.size] = np.clip(span, -_LARGEST, _LARGEST)
            tiles[span.size :] = 0
            tiles[:] = fft.dctn(tiles.reshape(-1, _SIDE, _SIDE), axes=(1, 2), norm="ortho").reshape(-1)
        return self._inner.pack(coefficients, body, count)

    def parse(self, header: Header, body: Array) -> Sections:
        if header.exponent > _HIGHEST_EXPONENT:
            raise PayloadError(f"codec 'dct_topk': exponent {header.exponent}, but at most {_HIGHEST_EXPONENT}")
        padded = Header(header.tag, header.count, _padded(header.size), header.exponent)
        return self._inner.parse(padded, body)

    def load(self, sections: Sections, start: int, out: Array) -> None:
        out.fill(0)
        self.add(sections, start, out, np.float32(1))

    def add(self, sections: Sections, start: int, out: Array, weight: np.float32) -> None:
        for first in range(0, out.size, _SPAN):
            tiles = np.empty(_padded(min(_SPAN, out.size - first)), np.float32)
            self._inner.load(sections, start + first, tiles)
            decoded = fft.idctn(tiles.reshape(-1, _SIDE, _SIDE), axes=(1, 2), norm="ortho").reshape(-1)
            target = out[first : first + _SPAN]
            target += decoded[: target.size] * weight

    def largest(self, sections: Sections) -> float:
        return _SIDE * self._inner.largest(sections)  # the L2 norm of a tile of them


def _padded(size: int) -> int:
    return -(-size // _TILE) * _TILE
