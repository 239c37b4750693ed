"""Stochastic gradient descent, with momentum if wanted."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from .base import InnerOptimizer


class SGD(InnerOptimizer):
    """Applies g <- g + decay theta; m <- b m + g; theta <- theta - rate m, as `torch.optim.SGD`: m is a sum."""

    moment_names: tuple[str, ...] = ("momentum",)

    def __init__(self, *, momentum: float, weight_decay: float) -> None:
        super().__init__()
        self.momentum, self.weight_decay = momentum, weight_decay
        if not momentum:
            self.moment_names = ()

    @property
    def decay(self) -> float:
        return self.momentum

    def apply(self, rate: float) -> Iterator[slice]:
        yield slice(0, len(self.vector))
        if self.weight_decay:
            for place, decayed in self.ranges:
                if decayed:
                    self.gradient[place].add_(self.vector[place], alpha=self.weight_decay)
        step = self.gradient
        if self.momentum:
            step = self.moments["momentum"].mul_(self.momentum).add_(self.gradient)
        self.vector.add_(step, alpha=-rate)

    def momentum_of(self, direction: Tensor, like: Tensor) -> Tensor:
        """Return the direction itself: a step at rate 1 is the momentum."""
        return direction

    def expect(self, direction: Tensor | None, second: Tensor | None, steps: float) -> None:
        super().expect(direction, second, steps)
        if self.moments and direction is not None:
            self.moments["momentum"].copy_(direction)
