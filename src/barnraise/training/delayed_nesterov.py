"""Delayed Nesterov (Liu et al., 2024, "Asynchronous Local-SGD Training for Language Modeling", algorithm 3, c = 0)."""

from __future__ import annotations

from collections.abc import Mapping

from .base import Array, OuterOptimizer


class DelayedNesterov(OuterOptimizer):
    """Adds g to B; update = lr g / N, and at each N-th step momentum is applied and B reset.

    B <- B + g; at each N-th step m <- beta m + B / N; update = lr (g / N + beta m); B <- 0. N (`delay`) is at least the
    pushes in which every worker takes part: the number of workers when each push makes a version, workers / K when K of
    them do. Between momentum steps progress is that of SGD at lr / N.
    """

    moment_names = ("momentum", "buffer")

    def __init__(self, learning_rate: float, momentum: float, delay: int) -> None:
        super().__init__(learning_rate)
        self.momentum, self.delay = momentum, delay

    def update(self, gradient: Array, moments: Mapping[str, Array], learning_rate: float) -> None:
        moment, buffer = moments["momentum"], moments["buffer"]
        buffer += gradient
        gradient /= self.delay
        if self.steps % self.delay == 0:
            buffer /= self.delay
            moment *= self.momentum
            moment += buffer
            gradient += moment * self.momentum
            buffer.fill(0)
        gradient *= learning_rate

    def growth(self, gradient: float, moments: Mapping[str, float], rate: float) -> tuple[float, dict[str, float]]:
        buffer = moments["buffer"] + gradient
        moment = moments["momentum"] + buffer / self.delay
        update = max(1.0, self.learning_rate * rate) * (gradient / self.delay + moment)
        return update, {"momentum": moment, "buffer": buffer}
