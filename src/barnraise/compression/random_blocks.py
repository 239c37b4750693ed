"""Blocks of elements that a shared seed chooses: every worker sends the same ones.

Where each worker sends its own largest elements, a rule that compares coordinate by coordinate sees one value among
zeros, and masks that must cancel do not meet. Here the support depends only on the version that is updated, and costs
no bytes; updates of several versions, which meet in asynchronous mode, do not share it. In any 1 / ratio consecutive
versions each block is sent once (a random permutation, cut into that many parts; Konecny et al., 2016, "Federated
Learning: Strategies for Improving Communication Efficiency", section 3, draws a new random mask each time).
"""

from __future__ import annotations

import numpy as np

from .base import Array, Header, Sections, SparseCodec, largest_magnitude
from .catalog import kept
from .fp16 import check_half, from_half, largest_half, shared_exponent, to_half


class RandomBlocks(SparseCodec):
    """Body: the elements of the chosen blocks in order, float16, times 2**exponent; beyond the vector's end, zeros.

    The header's count is the version (modulo 2**32). Error: elements outside the blocks are left out; inside, fp16's.
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
        indices = self._indices(self._blocks(values.size, count))
        chosen = np.zeros(indices.size, np.float32)
        inside = indices < values.size
        chosen[inside] = values[indices[inside]]
        exponent = shared_exponent(chosen)
        to_half(chosen, exponent, body.view("<f2"))
        return exponent

    def parse(self, header: Header, body: Array) -> Sections:
        halves = body.view("<f2")
        check_half(halves, header.exponent)
        return self._blocks(header.size, header.count), halves, np.array(header.exponent)

    def entries(self, sections: Sections, start: int, stop: int) -> Sections:
        blocks, halves, exponent = sections
        first, last = np.searchsorted(blocks, [start // self.block, -(-stop // self.block)])
        places = self._indices(blocks[first:last]) - start
        values = np.empty(places.size, np.float32)
        from_half(halves[first * self.block : last * self.block], int(exponent), values)
        begin, end = np.searchsorted(places, [0, stop - start])
        return places[begin:end], values[begin:end]

    def largest(self, sections: Sections) -> float:
        _, halves, exponent = sections
        return largest_half(halves, int(exponent))

    def _indices(self, blocks: Array) -> Array:
        """Return the elements of `blocks`, ascending, int64; in a short last block some are beyond the vector's end."""
        indices: Array = (blocks[:, None] * self.block + np.arange(self.block)).reshape(-1)
        return indices

    def _blocks(self, size: int, version: int) -> Array:
        """Return this version's blocks, ascending, int64."""
        num_blocks = -(-size // self.block)
        if not num_blocks:
            return np.empty(0, np.int64)
        num_kept = kept(self.ratio, num_blocks)
        turns = -(-num_blocks // num_kept)
        lap, turn = divmod(version, turns)
        order = np.argsort(np.random.Philox(key=lap).random_raw(num_blocks), kind="stable")
        chosen = order[np.arange(turn * num_kept, (turn + 1) * num_kept) % num_blocks]
        blocks: Array = np.sort(chosen)
        return blocks
