"""Small integers with one scale a block of consecutive elements (block-wise absmax quantisation).

Blocks keep one large element from coarsening the whole vector (Dettmers et al., 2022, "8-bit Optimizers via
Block-wise Quantization", section 2.1); here the code is linear. Rounding is to nearest even, or up and down at random
so that the mean is right (stochastic); the random numbers are drawn from the values themselves, so the same vector
gives the same bytes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from barnraise.core.errors import PayloadError

from .base import Array, Header, PiecewiseCodec, Sections, require_no_exponent
from .fast import loops

_FLOAT = np.finfo(np.float32)
_ONES = np.uint32(0x11111111)
_BYTES = np.arange(256)
_HALVES = np.stack([_BYTES & 15, _BYTES >> 4], axis=1) - 8
_PAIRS = _HALVES.astype(np.float32).view(np.uint64).reshape(-1)


class BlockInteger(PiecewiseCodec):
    """Body: one float32 scale a block, then the integers; x is about scale * q. The header's count is the block.

    scale = max|x| of the block / L, q = x / scale rounded, from -L to L; a subnormal scale is stored as 0.
    Error: |x - decoded| <= scale * (1/2 + 2**-15), twice that when stochastic, and L * 2**-126 where the scale is 0.
    """

    levels: ClassVar[int]

    def __init__(self, block: int, rounding: str) -> None:
        super().__init__(block=block, rounding=rounding)
        self.block, self.stochastic = block, rounding == "stochastic"
        self.piecewise = not self.stochastic  # random numbers are drawn for the vector as a whole
        self.multiple = 2 * block  # whole bytes of two blocks
        self.at_once = self.multiple * max(1, (1 << 15) // block)
        self.largest_scale = np.nextafter(_FLOAT.max / np.float32(self.levels), np.float32(0))  # L times it is finite

    def count(self, size: int, version: int) -> int:
        return self.block

    def pack(self, values: Array, body: Array, count: int) -> int:
        if not self.stochastic:
            return super().pack(values, body, count)
        self._write(values, body, 0, values.size, None, _Dice(values))
        return 0

    def put(self, values: Array, body: Array, start: int, size: int, decoded: Array | None) -> None:
        self._write(values, body, start, size, decoded, None)

    def _write(
        self, values: Array, body: Array, start: int, size: int, decoded: Array | None, dice: _Dice | None
    ) -> None:
        scales, stored = self._sections(body, size)
        scratch = np.empty(min(self.at_once, values.size), np.float32)
        for first in range(0, values.size, self.at_once):
            span = values[first : first + self.at_once]
            quotients, row = scratch[: span.size], (start + first) // self.block
            for rows, divided in zip(self._rows(span), self._rows(quotients), strict=True):
                self._divide(rows, scales[row : row + len(rows)], divided)
                row += len(rows)
            if dice is not None:
                quotients += dice.roll(span.size, self.block)
                np.floor(quotients, out=quotients)
                np.clip(quotients, -self.levels, self.levels, out=quotients)
            else:
                np.rint(quotients, out=quotients)
            self.store(quotients, stored, start + first)
            if decoded is not None:
                np.add(quotients, np.float32(0), out=decoded[first : first + self.at_once])  # turns -0 into 0
                self._scale(decoded[first : first + self.at_once], scales, start + first)

    def _rows(self, span: Array) -> Iterator[Array]:
        """Yield the blocks of `span` as rows [n, block], and the short last one as [1, rest].

        `span` begins with a block.
        """
        full = span.size // self.block * self.block
        if full:
            yield span[:full].reshape(-1, self.block)
        if full < span.size:
            yield span[None, full:]

    def _divide(self, rows: Array, scales: Array, out: Array) -> None:
        """Compute the `scales` of `rows`, and rows / scales."""
        np.abs(rows, out=out).max(axis=1, out=scales)
        if not np.isfinite(scales).all():
            raise PayloadError("a vector with elements that are not finite")
        scales /= np.float32(self.levels)
        np.minimum(scales, self.largest_scale, out=scales)
        scales[scales < _FLOAT.smallest_normal] = 0
        np.divide(rows, np.where(scales > 0, scales, _FLOAT.max)[:, None], out=out)

    def _scale(self, integers: Array, scales: Array, start: int) -> None:
        """Multiply `integers`, the elements from `start` on, by their scales in place."""
        row = start // self.block
        for rows in self._rows(integers):
            rows *= scales[row : row + len(rows), None]
            row += len(rows)

    def parse(self, header: Header, body: Array) -> Sections:
        require_no_exponent(self.name, header)
        scales, stored = self._sections(body, header.size)
        if not ((scales >= 0) & (scales <= self.largest_scale)).all():  # NaN fails both
            raise PayloadError(f"codec '{self.name}': a scale is not between 0 and {self.largest_scale:.3g}")
        for start in range(0, stored.size, self.at_once):
            self.check_stored(stored[start : start + self.at_once])
        return scales, stored

    def values(self, sections: Sections, start: int, out: Array) -> None:
        scales, stored = sections
        self.load_integers(stored, start, out)
        self._scale(out, scales, start)

    def largest(self, sections: Sections) -> float:
        return self.levels * float(sections[0].max(initial=0))

    def _sections(self, body: Array, size: int) -> tuple[Array, Array]:
        num_blocks = -(-size // self.block)
        return body[: 4 * num_blocks].view("<f4"), body[4 * num_blocks :]

    @abstractmethod
    def store(self, integers: Array, stored: Array, start: int) -> None:
        """Write `integers` (whole float32 from -L to L) as the elements from `start` on."""

    @abstractmethod
    def load_integers(self, stored: Array, start: int, out: Array) -> None:
        """Write the elements from `start` on into `out` (float32)."""

    @abstractmethod
    def check_stored(self, stored: Array) -> None:
        """Raise PayloadError for integers that `store` never writes."""


class _Dice:
    """Random numbers for `values`: a changed value changes them all, or two dithered rounds would err alike."""

    def __init__(self, values: Array) -> None:
        words = values[: values.size // 2 * 2].view("<u8")
        last = values[words.size * 2 :].view("<u4")
        self._bits = np.random.SFC64([int(np.add.reduce(words)), int(np.bitwise_xor.reduce(words)), *map(int, last)])

    def roll(self, size: int, block: int) -> Array:
        """Return `size` multiples of 2**-24 from 0 to below 1 (float32).

        Each has eight bits of its own, and shares sixteen with its `block`, so that each alone is uniform down to small
        fractions.
        """
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

    def load_integers(self, stored: Array, start: int, out: Array) -> None:
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

    def load_integers(self, stored: Array, start: int, out: Array) -> None:
        pairs = stored[start // 2 : (start + out.size + 1) // 2].astype("<u2")
        pairs = (pairs | pairs << 4) & 0x0F0F
        np.subtract(pairs.view(np.uint8)[: out.size], np.float32(8), out=out)

    def values(self, sections: Sections, start: int, out: Array) -> None:
        scales, stored = sections
        whole, compiled = out.size // self.block * self.block, loops(2 * stored.size)
        if compiled is None or self.block % 2 or not whole:
            super().values(sections, start, out)
            return
        row = start // self.block
        few = stored[start // 2 : (start + whole) // 2], scales[row : row + whole // self.block]
        compiled.from_nibbles(*few, _PAIRS, out[:whole])
        if whole < out.size:
            super().values(sections, start + whole, out[whole:])

    def check_stored(self, stored: Array) -> None:
        words = stored[: stored.size // 4 * 4].view("<u4")
        zeros = (words - _ONES) & ~words & (_ONES << 3)  # not 0 where a half byte is (Warren, "Hacker's Delight", 6-1)
        rest = stored[words.size * 4 :]
        if zeros.max(initial=0) or not ((rest & 15).all() and (rest >> 4).all()):
            raise PayloadError("codec 'int4': a value of -8, but the lowest is -7")
