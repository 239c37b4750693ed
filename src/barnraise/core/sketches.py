"""Sketches: short summaries by which two parties compare vectors that are too long to send.

A count sketch (Charikar, Chen and Farach-Colton 2002) adds each element, with a random sign, to one of SKETCH_SIZE
sums: s_b = sum of sign(i) * v_i over all i with bucket(i) = b. It is linear, so the sketch of a difference is the
difference of sketches, and inner products of sketches are those of the vectors in expectation (Weinberger et al. 2009,
"Feature hashing", lemma 2), with a standard deviation of about |a| |b| / sqrt(SKETCH_SIZE): 3% of the norms. A node
that does not know the seed beforehand cannot craft a vector with another one's sketch.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barnraise.core.threads import SPAN, spans
from barnraise.core.types import SKETCH_SIZE

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float32]]

_ELEMENTS = 4
"""Elements of a vector for each 64 random bits: 16 bits each, ten for the bucket and one for the sign."""

FARTHEST = 1e9
"""Upper bound of reported distances, so that they are finite for any input."""


def sketch(read: Callable[[int, Array], None], size: int, seed: int) -> bytes:
    """Return the sketch of a vector of `size` elements; `read(start, out)` fills `out`, float32.

    Takes memory for SPAN elements. Equal on all machines up to the rounding of sums.

    >>> import numpy as np
    >>> vector = np.arange(5, dtype=np.float32)
    >>> found = sketch(lambda start, out: np.copyto(out, vector[start : start + len(out)]), 5, seed=7)
    >>> len(found), float(np.abs(np.frombuffer(found, "<f4")).sum())
    (4096, 10.0)
    """
    import numpy as np

    bits, sums = np.random.Philox(key=seed), np.zeros(SKETCH_SIZE)
    for span in spans(size, SPAN):
        values = np.empty(span.stop - span.start, np.float32)
        read(span.start, values)
        drawn = bits.random_raw(-(-values.size // _ELEMENTS)).astype("<u8").view("<u2")[: values.size]
        signed = np.where(drawn & SKETCH_SIZE, values, -values)
        sums += np.bincount(drawn & (SKETCH_SIZE - 1), weights=signed, minlength=SKETCH_SIZE)
    with np.errstate(over="ignore"):
        return sums.astype("<f4").tobytes()


def is_finite(found: bytes) -> bool:
    """Return whether a sketch holds only finite numbers."""
    return all(map(math.isfinite, _numbers(found)))


def compare(ours: bytes, theirs: bytes) -> tuple[float, float]:
    """Compare two vectors by their sketches: return the cosine of their angle and their relative distance.

    The distance is the length of `theirs - ours` divided by that of `ours`. Vectors of length 0 are alike.

    >>> one = array("f", [1.0] * SKETCH_SIZE).tobytes()
    >>> compare(one, one), compare(one, array("f", [-1.0] * SKETCH_SIZE).tobytes())
    ((1.0, 0.0), (-1.0, 2.0))
    """
    a, b = _numbers(ours), _numbers(theirs)
    length, other = math.hypot(*a), math.hypot(*b)
    apart = math.dist(a, b)
    if not length or not other:
        return (1.0, 0.0) if length == other else (0.0, FARTHEST if not length else 1.0)
    product = math.fsum(x / length * (y / other) for x, y in zip(a, b, strict=True))
    return max(-1.0, min(1.0, product)), min(FARTHEST, apart / length)


def _numbers(found: bytes) -> array[float]:
    numbers = array("f", found)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
