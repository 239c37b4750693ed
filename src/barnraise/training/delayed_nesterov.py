"""Delayed Nesterov (Liu et al., 2024, "Asynchronous Local-SGD Training for Language Modeling", algorithm 3, c = 0)."""

from __future__ import annotations

from torch import Tensor

from .base import OuterOptimizer


class DelayedNesterov(OuterOptimizer):
    """B <- B + g; update = lr g / N, and at each N-th step m <- beta m + B / N; update = lr (g / N + beta m); B <- 0.

    N (`delay`) is at least the pushes it takes for every worker to be heard: the number of workers when each push
    makes a version, workers / K when K of them do. Between momentum steps progress is that of SGD at lr / N.
    """

    moment_names = ("momentum", "buffer")

    def __init__(self, learning_rate: float, momentum: float, delay: int) -> None:
        super().__init__(learning_rate)
        self.momentum, self.delay = momentum, delay

    def update(self, parameters: Tensor, pseudo_gradient: Tensor, learning_rate: float) -> Tensor:
        moment, buffer = self.moments["momentum"], self.moments["buffer"]
        buffer.add_(pseudo_gradient)
        update = pseudo_gradient / self.delay
        if self.steps % self.delay == 0:
            moment.mul_(self.momentum).add_(buffer.div_(self.delay))
            update.add_(buffer.copy_(moment).mul_(self.momentum))
            buffer.zero_()
        return update.mul_(learning_rate)
