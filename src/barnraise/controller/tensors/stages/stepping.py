"""The outer optimizer's stage: from the aggregate of a version to the movement of the parameters."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from torch import Tensor

from barnraise.compression.base import Array
from barnraise.controller.tensors.stages.base import Making, Stage
from barnraise.models.exchange.record import UNIT
from barnraise.training.base import OuterOptimizer

_PREFIX = "outer."

_FARTHEST = 4.0 * UNIT
"""Movement of a published moment by a version, at most: four binary orders of magnitude."""


class Outer(Stage):
    """One step of the outer optimizer, over the vector of all parameters.

    Moments that are published behind them, from `moments_start` on, become the aggregate of the workers' own,
    whatever the optimizer does with the rest.
    """

    def __init__(self, optimizer: OuterOptimizer, moments_start: int | None = None) -> None:
        self._optimizer, self._moments_start = optimizer, moments_start

    def growth(self, making: Making, largest: float, before: Mapping[str, float], after: dict[str, float]) -> float:
        moments = {name: before.get(_told(name), 0.0) for name in self._optimizer.moment_names}
        update, moments = self._optimizer.growth(largest, moments, making.rate)
        after |= {_told(name): moment for name, moment in moments.items()}
        return max(update, min(largest, _FARTHEST))

    def begin(self, making: Making) -> None:
        self._optimizer.begin(making.size)

    def step(self, making: Making, span: slice, values: Array) -> Array:
        for here, there in making.parts(span):
            self._step(values[there], here.start, making.rate)
        np.negative(values, out=values)
        return values

    def _step(self, values: Array, start: int, rate: float) -> None:
        """Step along `values`, which are of the elements from `start` on."""
        moments = self._moments_start
        parameters = values.size if moments is None else max(0, min(values.size, moments - start))
        self._optimizer.step(values[:parameters], start, rate)
        np.clip(values[parameters:], -_FARTHEST, _FARTHEST, out=values[parameters:])

    def vectors(self) -> dict[str, Tensor]:
        return {_told(name): moment for name, moment in self._optimizer.moments.items()}

    def state(self) -> dict[str, Tensor]:
        return {_PREFIX + name: tensor for name, tensor in self._optimizer.state().items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        own = {name.removeprefix(_PREFIX): t for name, t in tensors.items() if name.startswith(_PREFIX)}
        self._optimizer.load(own)


def _told(name: str) -> str:
    return f"the outer optimizer's {name}"
