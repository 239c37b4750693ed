"""The coordinate-wise median of updates."""

from __future__ import annotations

import numpy as np

from .base import Array, Rule
from .network import apply, missing_as_infinite, trimming


class Median(Rule):
    """The median of each coordinate, the mean of the two middle values when n is even.

    With f attackers kappa = 4 (1 + f/(n-2f))^2, for any f < n/2.
    """

    name = "median"

    def reduce(self, block: Array, out: Array) -> None:
        n = len(block)
        missing_as_infinite(block)
        rows = apply(trimming(n, (n - 1) // 2), block)
        midpoint(rows[(n - 1) // 2], rows[n // 2], out)

    def bound(self, largest: Array) -> float:
        n = len(largest)
        return float(np.sort(largest)[n // 2])


def midpoint(a: Array, b: Array, out: Array) -> None:
    """Write (a + b) / 2 into `out`, without overflow."""
    if a is b:
        out[:] = a
    else:
        np.multiply(a, 0.5, out=out)
        out += b * 0.5
