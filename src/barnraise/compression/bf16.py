"""bfloat16: float32 without its lower 16 bits, rounded."""

from __future__ import annotations

import numpy as np
import torch

from barnraise.core.errors import PayloadError

from .base import Array, DenseCodec, Header, Sections, largest_magnitude, require_no_exponent

LARGEST = 2.0**127 * (2 - 2**-7)


class BFloat16(DenseCodec):
    """Body: `size` bfloat16, rounded to nearest even; beyond the largest finite one, that one.

    Error: |x - decoded| <= max(2**-8 |x|, 2**-126): what is subnormal may become 0.
    """

    name = "bf16"
    tag = b"bf16"

    def pack(self, values: Array, body: Array, count: int) -> int:
        largest = largest_magnitude(values)
        halves = torch.from_numpy(body.view("<i2")).view(torch.bfloat16)
        for start in range(0, values.size, self.span):
            piece = values[start : start + self.span]
            if largest > LARGEST:
                piece = np.clip(piece, -LARGEST, LARGEST)
            halves[start : start + self.span].copy_(torch.from_numpy(piece))
        return 0

    def open(self, header: Header, body: Array) -> Sections:
        require_no_exponent(self.name, header)
        bits = body.view("<u2")
        for start in range(0, bits.size, self.span):
            if ((bits[start : start + self.span] & 0x7F80) == 0x7F80).any():
                raise PayloadError("the payload's bfloat16 values hold NaN or infinity")
        return (bits,)

    def values(self, sections: Sections, start: int, out: Array) -> None:
        out.view("<u4")[:] = sections[0][start : start + out.size]
        out.view("<u4")[:] <<= 16
