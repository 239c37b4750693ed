"""8-bit integers with one scale a block of consecutive elements (block-wise absmax quantisation).

Blocks keep one large element from coarsening the whole vector (Dettmers et al., 2022, "8-bit Optimizers via
Block-wise Quantization", section 2.1); here the code is linear and rounds to nearest even, with no randomness.
"""

from __future__ import annotations

import numpy as np

from barnraise.core.errors import PayloadError

from .base import Array, DenseCodec, Header, Sections, require_no_exponent

_FLOAT = np.finfo(np.float32)
LARGEST_SCALE = np.nextafter(_FLOAT.max / np.float32(127), np.float32(0))  # 127 of it are finite


class BlockInt8(DenseCodec):
    """Body: one float32 scale a block, then `size` int8; x is about scale * q. The header's count is the block.

    scale = max|x| of the block / 127, q = round(x / scale), from -127 to 127; a subnormal scale is stored as 0.
    Error: |x - decoded| <= scale * (1/2 + 2**-15), and at most 2**-119 where the scale is 0.
    """

    name = "int8"
    tag = b"int8"

    def __init__(self, block: int) -> None:
        super().__init__(block=block)
        self.block = block
        self.span = block * max(1, (1 << 16) // block)

    def count(self, size: int) -> int:
        return self.block

    def pack(self, values: Array, body: Array) -> int:
        scales, quantised = self._sections(body, values.size)
        for start in range(0, values.size, self.span):
            stop = min(start + self.span, values.size)
            self._quantise(
                values[start:stop], scales[start // self.block : -(-stop // self.block)], quantised[start:stop]
            )
        return 0

    def open(self, header: Header, body: Array) -> Sections:
        require_no_exponent(self.name, header)
        scales, quantised = self._sections(body, header.size)
        if not ((scales >= 0) & (scales <= LARGEST_SCALE)).all():  # NaN fails both
            raise PayloadError(f"codec 'int8': a scale is not between 0 and {LARGEST_SCALE:.3g}")
        if quantised.size and quantised.min() < -127:
            raise PayloadError("codec 'int8': a value of -128, but the lowest is -127")
        return scales, quantised

    def values(self, sections: Sections, start: int, out: Array) -> None:
        scales, quantised = sections
        first, whole = start // self.block, out.size // self.block
        full = whole * self.block
        np.multiply(
            quantised[start : start + full].reshape(whole, self.block),
            scales[first : first + whole, None],
            out=out[:full].reshape(whole, self.block),
        )
        if full < out.size:
            np.multiply(quantised[start + full : start + out.size], scales[first + whole], out=out[full:])

    def _sections(self, body: Array, size: int) -> tuple[Array, Array]:
        num_blocks = -(-size // self.block)
        return body[: 4 * num_blocks].view("<f4"), body[4 * num_blocks :].view(np.int8)

    def _quantise(self, values: Array, scales: Array, out: Array) -> None:
        full = values.size // self.block * self.block
        self._quantise_rows(values[:full].reshape(-1, self.block), scales[: full // self.block], out[:full])
        if full < values.size:
            self._quantise_rows(values[full:].reshape(1, -1), scales[-1:], out[full:])

    def _quantise_rows(self, rows: Array, scales: Array, out: Array) -> None:
        if not rows.size:
            return
        np.maximum(rows.max(axis=1), -rows.min(axis=1), out=scales)
        if not np.isfinite(scales).all():
            raise PayloadError("a vector with elements that are not finite")
        scales /= np.float32(127)
        np.minimum(scales, LARGEST_SCALE, out=scales)
        scales[scales < _FLOAT.smallest_normal] = 0
        quotients = rows / np.where(scales > 0, scales, np.float32(1))[:, None]
        np.rint(quotients, out=quotients)
        np.copyto(out.reshape(rows.shape), quotients, casting="unsafe")
