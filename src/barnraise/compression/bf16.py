"""bfloat16: float32 without its lower 16 bits, rounded."""

from __future__ import annotations

import numpy as np
import torch

from barnraise.core.errors import PayloadError

from .base import Array, Header, PiecewiseCodec, Sections, largest_magnitude, require_no_exponent

LARGEST = 2.0**127 * (2 - 2**-7)


class BFloat16(PiecewiseCodec):
    """Body: `size` bfloat16, rounded to nearest even; larger values become the largest finite one.

    Error: |x - decoded| <= max(2**-8 |x|, 2**-126): subnormal values may become 0.
    """

    name = "bf16"
    tag = b"bf16"

    def put(self, values: Array, body: Array, start: int, size: int, decoded: Array | None) -> None:
        halves = torch.from_numpy(body.view("<i2")).view(torch.bfloat16)[start : start + values.size]
        for first in range(0, values.size, self.at_once):
            span = values[first : first + self.at_once]
            if largest_magnitude(span) > LARGEST:
                span = np.clip(span, -LARGEST, LARGEST)
            halves[first : first + self.at_once].copy_(torch.from_numpy(span))
        if decoded is not None:
            self.load((body.view("<u2"),), start, decoded)

    def parse(self, header: Header, body: Array) -> Sections:
        require_no_exponent(self.name, header)
        bits = body.view("<u2")
        for start in range(0, bits.size, self.at_once):
            if ((bits[start : start + self.at_once] & 0x7F80) == 0x7F80).any():
                raise PayloadError("the payload's bfloat16 values hold NaN or infinity")
        return (bits,)

    def values(self, sections: Sections, start: int, out: Array) -> None:
        out.view("<u4")[:] = sections[0][start : start + out.size]
        out.view("<u4")[:] <<= 16

    def largest(self, sections: Sections) -> float:
        (bits,) = sections
        found = (bits[start : start + self.at_once] for start in range(0, bits.size, self.at_once))
        most = max((int((span & 0x7FFF).max()) for span in found), default=0)
        return float(np.array(most << 16, "<u4").view("<f4"))
