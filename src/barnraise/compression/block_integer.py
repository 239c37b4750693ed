"""Small integers with one scale a block of consecutive elements (block-wise absmax quantisation).

Blocks keep one large element from coarsening the whole vector (Dettmers et al., 2022, "8-bit Optimizers via
Block-wise Quantization", section 2.1); here the code is linear. Rounding is to nearest even, or up and down at random
so that the mean is right (stochastic); the random numbers are drawn from the values themselves, so the same vector
gives the same bytes.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np
import torch

from barnraise.core.errors import PayloadError

from .base import Array, DenseCodec, Header, Sections, require_no_exponent

_FLOAT = np.finfo(np.float32)


class BlockInteger(DenseCodec):
    """Body: one float32 scale a block, then the integers; x is about scale * q. The header's count is the block.

    scale = max|x| of the block / L, q = x / scale rounded, from -L to L; a subnormal scale is stored as 0.
    Error: |x - decoded| <= scale * (1/2 + 2**-15), twice that when stochastic, and L * 2**-126 where the scale is 0.
    """

    levels: ClassVar[int]

    def __init__(self, block: int, rounding: str) -> None:
        super().__init__(block=block, rounding=rounding)
        self.block, self.stochastic = block, rounding == "stochastic"
        self.span = 2 * block * max(1, (1 << 15) // block)
        self.largest_scale = np.nextafter(_FLOAT.max / np.float32(self.levels), np.float32(0))  # L of it are finite

    def count(self, size: int, version: int) -> int:
        return self.block

    def pack(self, values: Array, body: Array, count: int) -> int:
        scales, stored = self._sections(body, values.size)
        scratch = np.empty(min(self.span, values.size), np.float32)
        dice = _Dice(values) if self.stochastic else None
        for start in range(0, values.size, self.span):
            piece = values[start : start + self.span]
            quotients = scratch[: piece.size]
            first, full = start // self.block, piece.size // self.block * self.block
            for begin, end, width in ((0, full, self.block), (full, piece.size, piece.size - full)):
                if begin < end:
                    row = first + begin // self.block
                    rows = scales[row : row + (end - begin) // width]
                    self._divide(piece[begin:end].reshape(-1, width), rows, quotients[begin:end].reshape(-1, width))
            if dice is not None:
                quotients += dice.roll(piece.size, self.block)
                np.floor(quotients, out=quotients)
                np.clip(quotients, -self.levels, self.levels, out=quotients)
            else:
                np.rint(quotients, out=quotients)
            self.store(quotients, stored, start)
        return 0

    def _divide(self, rows: Array, scales: Array, out: Array) -> None:
        """The `scales` of `rows`, and rows / scales."""
        quotients = torch.from_numpy(out)  # torch reduces along rows with vector instructions, numpy does not
        scales[:] = torch.abs(torch.from_numpy(rows), out=quotients).amax(1).numpy()
        if not np.isfinite(scales).all():
            raise PayloadError("a vector with elements that are not finite")
        scales /= np.float32(self.levels)
        np.minimum(scales, self.largest_scale, out=scales)
        scales[scales < _FLOAT.smallest_normal] = 0
        divisors = np.where(scales > 0, scales, _FLOAT.max)[:, None]
        torch.div(torch.from_numpy(rows), torch.from_numpy(divisors), out=quotients)

    def open(self, header: Header, body: Array) -> Sections:
        require_no_exponent(self.name, header)
        scales, stored = self._sections(body, header.size)
        if not ((scales >= 0) & (scales <= self.largest_scale)).all():  # NaN fails both
            raise PayloadError(f"codec '{self.name}': a scale is not between 0 and {self.largest_scale:.3g}")
        self.check_stored(stored)
        return scales, stored

    def values(self, sections: Sections, start: int, out: Array) -> None:
        scales, stored = sections
        self.load(stored, start, out)
        first, whole = start // self.block, out.size // self.block
        full = whole * self.block
        rows = torch.from_numpy(out[:full].reshape(whole, self.block))
        rows.mul_(torch.from_numpy(scales[first : first + whole, None].copy()))  # a copy: torch wants writable memory
        if full < out.size:
            out[full:] *= scales[first + whole]

    def _sections(self, body: Array, size: int) -> tuple[Array, Array]:
        num_blocks = -(-size // self.block)
        return body[: 4 * num_blocks].view("<f4"), body[4 * num_blocks :]

    @abstractmethod
    def store(self, integers: Array, stored: Array, start: int) -> None:
        """Write `integers` (whole float32 from -L to L) as the elements from `start` on."""

    @abstractmethod
    def load(self, stored: Array, start: int, out: Array) -> None:
        """The elements from `start` on into `out` (float32)."""

    @abstractmethod
    def check_stored(self, stored: Array) -> None:
        """PayloadError for integers that `store` never writes."""


class _Dice:
    """Random numbers for `values`: others when one of them is another, or two dithered rounds would err alike."""

    def __init__(self, values: Array) -> None:
        words = values[: values.size // 2 * 2].view("<u8")
        last = values[words.size * 2 :].view("<u4")
        self._bits = np.random.SFC64([int(np.add.reduce(words)), int(np.bitwise_xor.reduce(words)), *map(int, last)])

    def roll(self, size: int, block: int) -> Array:
        """`size` multiples of 2**-24 from 0 to below 1 (float32): eight bits of their own, and sixteen for each `block`
        of them, so that each by itself is even down to fractions that seldom round up."""
        numbers = self._bits.random_raw(-(-size // 8)).astype("<u8").view(np.uint8)[:size].astype(np.float32)
        shared = (self._bits.random_raw(-(-size // block)) >> 48).astype(np.float32) * np.float32(2**-16)
        full = size // block * block
        numbers[:full].reshape(-1, block)[:] += shared[: size // block, None]
        numbers[full:] += shared[-1]
        numbers *= np.float32(2**-8)
        return numbers


class BlockInt8(BlockInteger):
    """One byte an element, L = 127."""

    name = "int8"
    tag = b"int8"
    levels = 127

    def store(self, integers: Array, stored: Array, start: int) -> None:
        np.copyto(stored[start : start + integers.size].view(np.int8), integers, casting="unsafe")

    def load(self, stored: Array, start: int, out: Array) -> None:
        out[:] = stored[start : start + out.size].view(np.int8)

    def check_stored(self, stored: Array) -> None:
        if stored.size and stored.view(np.int8).min() < -127:
            raise PayloadError("codec 'int8': a value of -128, but the lowest is -127")


class BlockInt4(BlockInteger):
    """Two elements a byte, the first in the low half, each stored as q + 8; L = 7."""

    name = "int4"
    tag = b"int4"
    levels = 7

    def store(self, integers: Array, stored: Array, start: int) -> None:
        halves = np.full(integers.size + integers.size % 2, 8, np.uint8)
        np.copyto(halves[: integers.size], integers + np.float32(8), casting="unsafe")
        pairs = halves.view("<u2")
        stored[start // 2 : start // 2 + pairs.size] = (pairs | pairs >> 4).astype(np.uint8)  # the low byte has both

    def load(self, stored: Array, start: int, out: Array) -> None:
        pairs = stored[start // 2 : (start + out.size + 1) // 2].astype("<u2")
        pairs = (pairs | pairs << 4) & 0x0F0F
        np.subtract(pairs.view(np.uint8)[: out.size], np.float32(8), out=out)

    def check_stored(self, stored: Array) -> None:
        if not ((stored & 15).all() and (stored >> 4).all()):
            raise PayloadError("codec 'int4': a value of -8, but the lowest is -7")
