"""The weighted mean of the updates."""

from __future__ import annotations

from .base import Array, Rule, mean_rows


class Mean(Rule):
    """Computes sum_i w_i x_i / sum_i w_i; equal weights when none are given.

    Withstands no attacker.
    """

    name = "mean"

    def mix(self, gram: Array | None, shares: Array | None) -> Array | None:
        return None if shares is None else shares[None]

    def reduce(self, block: Array, out: Array) -> None:
        mean_rows(block, out)  # one row, or the mixed ones of a chain, where no weights apply

    def bound(self, largest: Array) -> float:
        return float(largest.sum())
