"""AdamW (Loshchilov and Hutter 2019), by torch's fused kernel where the device has one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from barnraise.core.threads import spans
from barnraise.training.catalog import AT_ONCE

from .base import InnerOptimizer, Range, shortened, within

FUSED = "cpu", "cuda", "mps", "xpu"
"""Kinds of devices for which torch has a fused kernel."""

EPSILON = 1e-8


class Views(NamedTuple):
    """The ranges of parameters, gradient and moments with one weight decay, and the steps counted for each."""

    tensors: list[list[Tensor]]
    counts: Tensor
    weight_decay: float


class Ranges:
    """AdamW's step on some ranges of a vector, all at once; `weight_decay` applies to those that decay."""

    def __init__(self, ranges: Sequence[Range], betas: tuple[float, float], weight_decay: float) -> None:
        self.ranges, self.betas, self.weight_decay = ranges, betas, weight_decay
        self._views = list[Views]()

    def over(self, *vectors: Tensor) -> Ranges:
        """Take further steps over `vectors`: parameters, gradient, first and second moments."""
        return self.over_parts([[vector[place] for place, _ in self.ranges] for vector in vectors])

    def over_parts(self, parts: Sequence[Sequence[Tensor]]) -> Ranges:
        """Take further steps over `parts` of these vectors, of each a part a range."""
        self._views = []
        for decays in (True, False):
            own = [number for number, (_, decayed) in enumerate(self.ranges) if decayed == decays]
            if own:
                counts = torch.zeros(len(own), dtype=torch.float32, device=parts[0][0].device)
                tensors = [[vector[number] for number in own] for vector in parts]
                self._views.append(Views(tensors, counts, self.weight_decay if decays else 0.0))
        return self

    def step(self, steps: float, rate: float) -> None:
        """Take the step with the number `steps`, from 1 on."""
        for (parameters, gradients, first, second), counts, weight_decay in self._views:
            counts.fill_(steps - 1.0)  # the function counts them on
            adamw(
                parameters,
                gradients,
                first,
                second,
                [],
                list(counts.unbind()),
                fused=counts.device.type in FUSED,
                amsgrad=False,
                beta1=self.betas[0],
                beta2=self.betas[1],
                lr=rate,
                weight_decay=weight_decay,
                eps=EPSILON,
                maximize=False,
            )


class AdamW(InnerOptimizer):
    """Applies m <- b1 m + (1-b1) g; v <- b2 v + (1-b2) g^2; theta <- (1 - rate decay) theta - rate m' / (sqrt(v') + e).

    m' and v' are m and v without their bias towards 0.
    """

    moment_names: tuple[str, ...] = ("exp_avg", "exp_avg_sq")

    def __init__(self, *, beta1: float, beta2: float, weight_decay: float) -> None:
        super().__init__()
        self.betas, self.weight_decay = (beta1, beta2), weight_decay

    @property
    def decay(self) -> float:
        return self.betas[0]

    @property
    def ramp_steps(self) -> int:
        """Return the steps that the second moments need: the first steps divide by one gradient alone.

        So they have the length of the rate in every parameter, and later ones are several times shorter.
        """
        return round(1.0 / (1.0 - self.betas[1]))

    def prepare(self) -> None:
        vectors = self.vector, self.gradient, *self.moments.values()
        self._ranges = list[tuple[slice, Ranges]]()
        for place in spans(len(self.vector), AT_ONCE if self.vector.device.type == "cpu" else len(self.vector)):
            ranges = Ranges(list(within(self.ranges, place)), self.betas, self.weight_decay)
            self._ranges.append((place, ranges.over(*(vector[place] for vector in vectors))))

    def apply(self, rate: float) -> Iterator[slice]:
        for place, ranges in self._ranges:
            yield place
            ranges.step(self.steps, rate)

    def momentum_of(self, direction: Tensor, like: Tensor) -> Tensor:
        """Return direction * sqrt(v'), with the bias of m: that undoes Adam's use of m."""
        second = self.second_moments()
        assert second is not None, "there are moments"
        return direction.mul_(second.sqrt_()).mul_(1.0 - self.betas[0] ** self.steps)

    def expect(self, direction: Tensor | None, second: Tensor | None, steps: float) -> None:
        super().expect(direction, second, steps)
        beta1, beta2 = self.betas
        if second is not None:
            self.moments["exp_avg_sq"].copy_(second * (1.0 - beta2**steps))
        if direction is not None and second is not None:
            root = second.sqrt()
            first = shortened(direction.mul_(root), self.noise * torch.linalg.vector_norm(root))
            self.moments["exp_avg"].copy_(first.mul_(1.0 - beta1**steps))

    def second_moments(self) -> Tensor | None:
        return self.moments["exp_avg_sq"] / (1.0 - self.betas[1] ** self.steps) if self.moments else None
