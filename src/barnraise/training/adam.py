"""Adam outside (Reddi et al., 2021, "Adaptive Federated Optimization", FedAdam; with Adam's bias correction)."""

from __future__ import annotations

from torch import Tensor

from barnraise.core.errors import OptionError

from .base import OuterOptimizer


class Adam(OuterOptimizer):
    """m <- b1 m + (1-b1) g; v <- b2 v + (1-b2) g^2; update = lr m / (1-b1^t) / (sqrt(v / (1-b2^t)) + epsilon).

    Kingma and Ba, 2015, algorithm 1. Each element moves by about lr a version, whatever the size of g.
    """

    moment_names = ("first", "second")

    def __init__(self, learning_rate: float, beta1: float, beta2: float, epsilon: float) -> None:
        super().__init__(learning_rate)
        if max(beta1, beta2) >= 1:
            raise OptionError(f"outer optimizer 'adam': beta1={beta1}, beta2={beta2}, but both must be below 1")
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon

    def update(self, parameters: Tensor, pseudo_gradient: Tensor, learning_rate: float) -> Tensor:
        first, second = self.moments["first"], self.moments["second"]
        scratch = pseudo_gradient * (1 - self.beta1)
        first.mul_(self.beta1).add_(scratch)
        scratch.copy_(pseudo_gradient).mul_(pseudo_gradient).mul_(1 - self.beta2)
        second.mul_(self.beta2).add_(scratch)
        scratch.copy_(second).div_(1 - self.beta2**self.steps).sqrt_().add_(self.epsilon)
        return (first / (1 - self.beta1**self.steps)).div_(scratch).mul_(learning_rate)
