"""The coordinate-wise trimmed mean (Yin et al., 2018, "Byzantine-Robust Distributed Learning", definition 2)."""

from __future__ import annotations

import numpy as np

from .base import Array, Rule, mean_rows
from .limits import trimmed_per_side
from .network import apply, missing_as_infinite, trimming


class TrimmedMean(Rule):
    """The mean of each coordinate without its t largest and t smallest values.

    t = f, or floor(trim_ratio * n), a quarter by default; it must be at least one and less than half of n. With f
    attackers kappa = 6f/(n-2f) (1 + f/(n-2f)). The remaining values are summed, never the extremes subtracted.
    """

    name = "trimmed_mean"

    def __init__(self, f: int | None, trim_ratio: float | None) -> None:
        super().__init__(f=f, trim_ratio=trim_ratio)

    def reduce(self, block: Array, out: Array) -> None:
        n = len(block)
        trimmed = trimmed_per_side(self.options, n)
        missing_as_infinite(block)
        middle = apply(trimming(n, trimmed), block)[trimmed : n - trimmed]
        mean_rows(middle, out)

    def bound(self, largest: Array) -> float:
        n = len(largest)
        trimmed = trimmed_per_side(self.options, n)
        return (n - 2 * trimmed) * float(np.sort(largest)[n - 1 - trimmed])
