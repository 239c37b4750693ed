"""Plain SGD outside: with rate 1, the average of the workers' parameters (FedAvg)."""

from __future__ import annotations

from collections.abc import Mapping

from .base import Array, OuterOptimizer


class SGD(OuterOptimizer):
    """Applies update = lr g to every element."""

    def update(self, gradient: Array, moments: Mapping[str, Array], learning_rate: float) -> None:
        gradient *= learning_rate

    def growth(self, gradient: float, moments: Mapping[str, float], rate: float) -> tuple[float, dict[str, float]]:
        return self.learning_rate * rate * gradient, {}
