"""Nesterov momentum outside (Douillard et al., 2023, "DiLoCo", section 3: rate 0.7, momentum 0.9)."""

from __future__ import annotations

from torch import Tensor

from .base import OuterOptimizer


class Nesterov(OuterOptimizer):
    """m <- beta m + g; update = lr (g + beta m)."""

    moment_names = ("momentum",)

    def __init__(self, learning_rate: float, momentum: float) -> None:
        super().__init__(learning_rate)
        self.momentum = momentum

    def update(self, parameters: Tensor, pseudo_gradient: Tensor, learning_rate: float) -> Tensor:
        moment = self.moments["momentum"]
        moment.mul_(self.momentum).add_(pseudo_gradient)
        return (moment * self.momentum).add_(pseudo_gradient).mul_(learning_rate)
