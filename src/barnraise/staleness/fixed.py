"""One bound for all nodes."""

from __future__ import annotations

from .base import StalenessPolicy


class Fixed(StalenessPolicy):
    """Sets bound = max_staleness for every node."""

    def __init__(self, max_staleness: int, weighting: str) -> None:
        super().__init__(weighting)
        self.max_staleness = max_staleness

    def bound(self, speed: float) -> int:
        return self.max_staleness
