"""Plain SGD outside: with rate 1, the average of what the workers reached (FedAvg)."""

from __future__ import annotations

from torch import Tensor

from .base import OuterOptimizer


class SGD(OuterOptimizer):
    """update = lr g."""

    def update(self, parameters: Tensor, pseudo_gradient: Tensor, learning_rate: float) -> Tensor:
        return pseudo_gradient * learning_rate
