"""Plain SGD outside: with rate 1, the average of what the workers reached (FedAvg)."""

from __future__ import annotations

from collections.abc import Mapping

from .base import Array, OuterOptimizer


class SGD(OuterOptimizer):
    """update = lr g."""

    def update(self, gradient: Array, moments: Mapping[str, Array], learning_rate: float) -> None:
        gradient *= learning_rate

    def growth(self, gradient: float, moments: Mapping[str, float], rate: float) -> tuple[float, dict[str, float]]:
        return self.learning_rate * rate * gradient, {}
