"""No compression: float32 as it is."""

from __future__ import annotations

import numpy as np

from .base import Array, DenseCodec, Header, Sections, largest_magnitude, require_finite, require_no_exponent


class Float32(DenseCodec):
    """Body: `size` float32. Decoding gives back every bit."""

    name = "none"
    tag = b"f32 "

    def pack(self, values: Array, body: Array, count: int) -> int:
        largest_magnitude(values)
        body.view("<f4")[:] = values
        return 0

    def open(self, header: Header, body: Array) -> Sections:
        require_no_exponent(self.name, header)
        values = body.view("<f4")
        require_finite(values, "the payload's values")
        return (values,)

    def values(self, sections: Sections, start: int, out: Array) -> None:
        np.copyto(out, sections[0][start : start + out.size])
