"""Half precision with one shared power of two, so that neither tiny updates vanish nor large ones overflow."""

from __future__ import annotations

import math

import numpy as np
import torch

from barnraise.core.errors import PayloadError

from .base import Array, DenseCodec, Header, Sections, largest_magnitude

LOWEST_EXPONENT, HIGHEST_EXPONENT = -100, 112  # decoded values stay normal and finite in float32
LARGEST_HALF = 65504.0
_SPAN = 1 << 15  # torch works on no more with one thread


def shared_exponent(values: Array) -> int:
    """Return the e for which the largest |x| * 2**-e lies in [2**14, 2**15), inside half precision's range."""
    largest = largest_magnitude(values)
    exponent = math.frexp(largest)[1] - 15 if largest else 0
    return min(max(exponent, LOWEST_EXPONENT), HIGHEST_EXPONENT)


def to_half(values: Array, exponent: int, out: Array) -> None:
    """Round values * 2**-exponent to nearest even in half precision, saturating, into `out` (float16)."""
    factor = np.float32(2.0**-exponent)
    scratch = np.empty(min(_SPAN, values.size), np.float32)
    for start in range(0, values.size, _SPAN):
        span = values[start : start + _SPAN]
        scaled = np.multiply(span, factor, out=scratch[: span.size])
        if exponent == HIGHEST_EXPONENT:
            np.clip(scaled, -LARGEST_HALF, LARGEST_HALF, out=scaled)
        # torch converts with vector instructions, numpy does not
        torch.from_numpy(out[start : start + _SPAN]).copy_(torch.from_numpy(scaled))


def from_half(halves: Array, exponent: int, out: Array) -> None:
    """Write halves * 2**exponent into `out` (float32), exactly."""
    for start in range(0, out.size, _SPAN):
        span = torch.from_numpy(halves[start : start + _SPAN].copy())  # a copy, since torch needs writable memory
        torch.from_numpy(out[start : start + _SPAN]).copy_(span)
    out *= np.float32(2.0**exponent)


def check_half(halves: Array, exponent: int) -> None:
    """Raise PayloadError unless the exponent is one of `shared_exponent` and all values are finite."""
    if not LOWEST_EXPONENT <= exponent <= HIGHEST_EXPONENT:
        raise PayloadError(
            f"half-precision values with exponent {exponent}, but must be {LOWEST_EXPONENT} to {HIGHEST_EXPONENT}"
        )
    if not math.isfinite(largest_half(halves, exponent)):
        raise PayloadError("the payload's half-precision values hold NaN or infinity")


def largest_half(halves: Array, exponent: int) -> float:
    """Return the largest |half| * 2**exponent, 0 for none; not finite where one of them is not."""
    bits = halves.reshape(-1).view("<u2")
    most = max((int((bits[i : i + _SPAN] & 0x7FFF).max()) for i in range(0, bits.size, _SPAN)), default=0)
    return float(np.array(most, "<u2").view("<f2")) * 2.0**exponent


def read_half(halves: Array, exponent: int) -> Array:
    """Return `halves` * 2**exponent as float32; PayloadError as for `check_half`."""
    check_half(halves, exponent)
    values = np.empty(halves.size, np.float32)
    from_half(halves, exponent, values)
    return values


class Float16(DenseCodec):
    """Body: `size` float16, to be multiplied by 2**exponent of the header.

    Error: |x - decoded| <= max(2**-11 |x|, 2**-39 max|x|, 2**-125); up to 2**-11 |x| more for |x| above 3.4e38.
    """

    name = "fp16"
    tag = b"f16 "

    def pack(self, values: Array, body: Array, count: int) -> int:
        exponent = shared_exponent(values)
        to_half(values, exponent, body.view("<f2"))
        return exponent

    def parse(self, header: Header, body: Array) -> Sections:
        halves = body.view("<f2")
        check_half(halves, header.exponent)
        return halves, np.array(header.exponent)

    def values(self, sections: Sections, start: int, out: Array) -> None:
        halves, exponent = sections
        from_half(halves[start : start + out.size], int(exponent), out)

    def largest(self, sections: Sections) -> float:
        halves, exponent = sections
        return largest_half(halves, int(exponent))
