"""Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", algorithm 2)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from barnraise.core.threads import spans

from .base import SignedOptimizer, within

SPAN = 1 << 22
"""Values that take the step at a time: so its scratch stays small."""


class Lion(SignedOptimizer):
    """Applies c = b1 m + (1-b1) g; theta <- (1 - rate decay) theta - rate sign(c); m <- b2 m + (1-b2) g."""

    moment_names: tuple[str, ...] = ("momentum",)

    def __init__(self, *, beta1: float, beta2: float, weight_decay: float) -> None:
        super().__init__()
        self.betas, self.weight_decay = (beta1, beta2), weight_decay

    @property
    def decay(self) -> float:
        return self.betas[1]

    @property
    def ramp_steps(self) -> int:
        """Return the steps until m is a mean of many gradients: the first ones are signs of one noisy gradient."""
        return round(1.0 / (1.0 - self.betas[1]))

    def apply(self, rate: float) -> Iterator[slice]:
        beta1, beta2 = self.betas
        momentum = self.moments["momentum"]
        for span in spans(len(self.vector), SPAN):
            yield span
            if self.weight_decay:
                for place, decayed in within(self.ranges, span):
                    if decayed:
                        self.vector[span][place].mul_(1.0 - rate * self.weight_decay)
            mixed = momentum[span] * beta1
            mixed.add_(self.gradient[span], alpha=1.0 - beta1)
            self.vector[span].add_(mixed.sign_(), alpha=-rate)
            momentum[span].mul_(beta2).add_(self.gradient[span], alpha=1.0 - beta2)

    def momentum_of(self, direction: Tensor, like: Tensor) -> Tensor:
        """Return the momentum that makes signs with the mean `direction`, u from -1 to 1.

        Let gradients be mu + s z, with z normal. Then c has the mean mu, and a deviation of

            s_c = s sqrt(b1^2 (1-b2)/(1+b2) + (1-b1)^2),    while that of m is    s_m = s sqrt((1-b2)/(1+b2)).

        The mean of sign(c) is u = erf(mu / (s_c sqrt 2)), which is mu / s_c * sqrt(2/pi) where noise prevails. So

            mu = u sqrt(pi/2) s_c = u sqrt(pi/2) s_m k,    k = sqrt(b1^2 + (1-b1)^2 (1+b2)/(1-b2)).

        s_m differs between tensors and is close to the root mean square of a worker's own m in each (`like`).
        """
        beta1, beta2 = self.betas
        ratio = math.sqrt(beta1**2 + (1.0 - beta1) ** 2 * (1.0 + beta2) / (1.0 - beta2))
        for leaf in self.layout.leaves:
            own = torch.linalg.vector_norm(like[leaf.place]) / math.sqrt(leaf.size)
            direction[leaf.place].mul_(own * (math.sqrt(math.pi / 2.0) * ratio))
        return direction
