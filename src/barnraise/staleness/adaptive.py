"""A bound in proportion to a node's task time, so that slow nodes' work is not refused for being slow."""

from __future__ import annotations

from barnraise.core.errors import OptionError

from .base import StalenessPolicy


class Adaptive(StalenessPolicy):
    """Sets bound = max_staleness / speed, to the nearest integer, from min_staleness to max_staleness * multiplier.

    A node of unknown speed (0, negative, NaN) gets the upper limit.
    """

    def __init__(self, max_staleness: int, min_staleness: int, max_staleness_multiplier: float, weighting: str) -> None:
        super().__init__(weighting)
        self.max_staleness = max_staleness
        self.lowest, self.highest = min_staleness, round(max_staleness * max_staleness_multiplier)
        if self.lowest > self.highest:
            raise OptionError(
                f"staleness policy 'adaptive': min_staleness is {min_staleness}, but must be at most max_staleness "
                f"* max_staleness_multiplier = {self.highest}"
            )

    def bound(self, speed: float) -> int:
        if not speed > 0:
            return self.highest
        bound = self.max_staleness / speed
        if bound >= self.highest:
            return self.highest
        return round(bound) if bound > self.lowest else self.lowest
