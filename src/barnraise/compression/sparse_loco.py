"""Chunked top-k with 2-bit values (Sarfi et al., 2025, "Communication Efficient LLM Pre-training with SparseLoCo").

The paper keeps 64 of 4096 with 12-bit places and one table of four values a tensor: 0.219 bits a parameter. Here places
take 8 bits (see `chunks`), which pays for a pair of magnitudes of each chunk's own, and it is 0.164 bits a parameter:
195 times less than float32.
"""

from __future__ import annotations

import numpy as np

from barnraise.core.errors import PayloadError

from . import bits
from .base import Array, Sections
from .catalog import two_bit_bytes
from .chunked_topk import ChunkedCodec
from .chunks import Grid
from .fp16 import read_half, shared_exponent, to_half

_LLOYD_STEPS = 2
_NEGATIVE, _LARGE = np.uint8(2), np.uint8(1)


class SparseLoCo(ChunkedCodec):
    """Values: a float16 pair (low, high) for each chunk, times 2**exponent, then a sign and a choice for each element.

    The last two take two bits an element. low <= high are the means of the chunk's smaller and larger kept magnitudes,
    divided by two steps of Lloyd's algorithm (k-means on a line). Error: a projection but for the pair's fp16 rounding,
    so |x - decoded| <= (1 + 2**-10) |x| in L2 norm; a chunk's decoded energy is at least (sum of kept |x|)**2 / k.
    """

    name = "sparse_loco"
    tag = b"loco"

    def value_bytes(self, grid: Grid) -> int:
        return two_bit_bytes(grid.rows, grid.count)

    def pack_values(self, chosen: Array, body: Array) -> int:
        magnitudes = np.ascontiguousarray(np.abs(chosen).T)  # sums down the columns have the same order everywhere
        pairs, large = _two_means(magnitudes)
        exponent = shared_exponent(pairs)
        pair_bytes = 2 * pairs.size
        to_half(np.ascontiguousarray(pairs.T).reshape(-1), exponent, body[:pair_bytes].view("<f2"))
        codes = (chosen < 0) * _NEGATIVE + large.T * _LARGE
        body[pair_bytes:] = bits.pack(codes.reshape(-1), 2)
        return exponent

    def parse_values(self, grid: Grid, exponent: int, body: Array) -> Sections:
        table = read_half(body[: 4 * grid.rows].view("<f2"), exponent).reshape(-1, 2)
        if (table[:, 0] < 0).any() or (table[:, 0] > table[:, 1]).any():
            raise PayloadError("codec 'sparse_loco': a chunk's magnitudes are not 0 <= low <= high")
        codes = bits.unpack(body[4 * grid.rows :], grid.count, 2).astype(np.uint8)
        return np.concatenate([table, -table], axis=1), codes.reshape(grid.rows, grid.kept)

    def row_values(self, sections: Sections, first: int, last: int) -> Array:
        signed, codes = sections
        values: Array = signed[first:last].reshape(-1)[codes[first:last] + 4 * np.arange(last - first)[:, None]]
        return values.reshape(-1)

    def largest(self, sections: Sections) -> float:
        return float(sections[1].max(initial=0))


def _two_means(magnitudes: Array) -> tuple[Array, Array]:
    """Return the means [2, rows] of the smaller and larger `magnitudes` [k, rows], and which are larger."""
    count = np.float32(len(magnitudes))
    whole = magnitudes.sum(axis=0, dtype=np.float64)
    split = whole / count
    for _ in range(_LLOYD_STEPS):
        large = magnitudes > split
        num_large = np.count_nonzero(large, axis=0)
        sum_large = np.where(large, magnitudes, 0).sum(axis=0, dtype=np.float64)
        low = (whole - sum_large) / np.maximum(count - num_large, 1)
        high = np.where(num_large, sum_large / np.maximum(num_large, 1), low)
        low = np.minimum(low, high)
        split = (low + high) / 2
    return np.stack([low, high]).astype(np.float32), large
