"""Blocks of elements that a shared seed chooses: every worker sends the same ones.

Where each worker sends its own largest elements, a rule that compares coordinate by coordinate sees one value among
zeros, and masks that must cancel do not meet. Here the support depends on the version that the update is against and on
nothing else, and costs no bytes; updates of several versions, which meet in asynchronous mode, do not share it. In any
1 / ratio consecutive versions each block has its turn (a random permutation, cut into that many parts; Konecny et al.,
2016, "Federated Learning: Strategies for Improving Communication Efficiency", section 3, draws a random mask anew each
time).
"""

from __future__ import annotations

import numpy as np

from .base import Array, Header, Sections, SparseCodec, largest_magnitude
from .catalog import kept
from .fp16 import read_half, shared_exponent, to_half


class RandomBlocks(SparseCodec):
    """Body: the elements of the chosen blocks in order, float16, times 2**exponent; beyond the vector's end, zeros.

    The header's count is the version (modulo 2**32). Error: what lies outside the blocks is left out; inside, fp16's.
    """

    name = "random_blocks"
    tag = b"rblk"
    count_tells_version = True

    def __init__(self, ratio: float, block: int) -> None:
        super().__init__(ratio=ratio, block=block)
        self.ratio, self.block = ratio, block

    def count(self, size: int, version: int) -> int:
        return version % (1 << 32)

    def pack(self, values: Array, body: Array, count: int) -> int:
        largest_magnitude(values)
        indices = self._indices(values.size, count)
        chosen = np.zeros(indices.size, np.float32)
        inside = indices < values.size
        chosen[inside] = values[indices[inside]]
        exponent = shared_exponent(chosen)
        to_half(chosen, exponent, body.view("<f2"))
        return exponent

    def open(self, header: Header, body: Array) -> Sections:
        values = read_half(body.view("<f2"), header.exponent)
        indices = self._indices(header.size, header.count)
        inside = int(np.searchsorted(indices, header.size))
        return indices[:inside], values[:inside]

    def _indices(self, size: int, version: int) -> Array:
        """The elements of this version's blocks, ascending, int64; in a short last block some are beyond the end."""
        num_blocks = -(-size // self.block)
        if not num_blocks:
            return np.empty(0, np.int64)
        num_kept = kept(self.ratio, num_blocks)
        parts = -(-num_blocks // num_kept)
        lap, part = divmod(version, parts)
        order = np.argsort(np.random.Philox(key=lap).random_raw(num_blocks), kind="stable")
        turn = order[np.arange(part * num_kept, (part + 1) * num_kept) % num_blocks]
        indices: Array = (np.sort(turn)[:, None] * self.block + np.arange(self.block)).reshape(-1)
        return indices
