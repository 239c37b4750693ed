"""Nesterov momentum outside (Douillard et al., 2023, "DiLoCo", section 3: rate 0.7, momentum 0.9)."""

from __future__ import annotations

from collections.abc import Mapping

from .base import Array, OuterOptimizer


class Nesterov(OuterOptimizer):
    """Applies m <- beta m + g; update = lr (g + beta m)."""

    moment_names = ("momentum",)

    def __init__(self, learning_rate: float, momentum: float) -> None:
        super().__init__(learning_rate)
        self.momentum = momentum

    def update(self, gradient: Array, moments: Mapping[str, Array], learning_rate: float) -> None:
        moment = moments["momentum"]
        moment *= self.momentum
        moment += gradient
        gradient += moment * self.momentum
        gradient *= learning_rate

    def growth(self, gradient: float, moments: Mapping[str, float], rate: float) -> tuple[float, dict[str, float]]:
        moment = self.momentum * moments["momentum"] + gradient
        return max(1.0, self.learning_rate * rate) * (self.momentum * moment + gradient), {"momentum": moment}
