"""No compression: float32 unchanged."""

from __future__ import annotations

import numpy as np

from .base import Array, Header, PiecewiseCodec, Sections, largest_magnitude, require_finite, require_no_exponent


class Float32(PiecewiseCodec):
    """Body: `size` float32 values, of which decoding gives back every bit."""

    name = "none"
    tag = b"f32 "

    def put(self, values: Array, body: Array, start: int, size: int, decoded: Array | None) -> None:
        largest_magnitude(values)
        body.view("<f4")[start : start + values.size] = values
        if decoded is not None:
            np.copyto(decoded, values)

    def parse(self, header: Header, body: Array) -> Sections:
        require_no_exponent(self.name, header)
        values = body.view("<f4")
        require_finite(values, "the payload's values")
        return (values,)

    def values(self, sections: Sections, start: int, out: Array) -> None:
        np.copyto(out, sections[0][start : start + out.size])

    def largest(self, sections: Sections) -> float:
        return largest_magnitude(sections[0])
