"""The interface of outer optimizers: they turn a version's aggregate into an update of the parameters.

The pseudo-gradient g is local start minus local end, averaged, so it points uphill like a gradient, and everywhere

    theta <- theta - update,    update = step(theta, g).

Each operation is elementwise and rounds once (no fused multiply-add), so a version can be made in spans, by any number
of threads, and a replay gives the same bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeAlias

import torch
from numpy.typing import NDArray
from torch import Tensor

from barnraise.core.errors import CorruptionError

Array: TypeAlias = NDArray[Any]


class OuterOptimizer(ABC):
    """Base class of outer optimizers over one flat float32 vector [d].

    Its state is `moments`, vectors [d] made at the first step, and the number of `steps` taken.
    """

    moment_names: tuple[str, ...] = ()

    def __init__(self, learning_rate: float) -> None:
        self.learning_rate = learning_rate
        self.steps = 0
        self.moments: dict[str, Tensor] = {}

    def begin(self, size: int) -> None:
        """Begin the step of one version, over a vector of `size`; called once a version, in the order of versions."""
        if not self.moments:
            self.moments = {name: torch.zeros(size, dtype=torch.float32) for name in self.moment_names}
        self.steps += 1

    def step(self, gradient: Array, start: int = 0, rate: float = 1.0) -> None:
        """Turn `gradient`, the pseudo-gradient of the elements from `start` on, into their update, in place.

        Called once for each element of the current step, in spans of any size and from any thread; the moments of other
        elements do not change. `rate` multiplies the learning rate (a schedule).
        """
        moments = {name: moment.numpy()[start : start + gradient.size] for name, moment in self.moments.items()}
        self.update(gradient, moments, self.learning_rate * rate)

    @abstractmethod
    def update(self, gradient: Array, moments: Mapping[str, Array], learning_rate: float) -> None:
        """Advance the moments and make the gradient the update, both in place; `steps` already counts this step."""

    @abstractmethod
    def growth(self, gradient: float, moments: Mapping[str, float], rate: float) -> tuple[float, dict[str, float]]:
        """Return upper bounds of the next update's elements, and of each moment after it.

        Intermediate values count as well. `gradient` and `moments` are the largest magnitudes before.
        """

    def state(self) -> dict[str, Tensor]:
        """Return the state for a checkpoint: the live moments (not copies) and `steps` [1]."""
        return {**self.moments, "steps": torch.tensor([self.steps])}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state`, whose vectors become the optimizer's own.

        CorruptionError when it is not one of this optimizer's.
        """
        moments = {name: tensor for name, tensor in state.items() if name != "steps"}
        steps = state.get("steps")
        complete = set(moments) == set(self.moment_names) or not moments
        alike = len({(tensor.shape, tensor.dtype) for tensor in moments.values()}) <= 1
        if steps is None or steps.numel() != 1 or not complete or not alike:
            found = {name: list(tensor.shape) for name, tensor in state.items()}
            raise CorruptionError(
                f"outer optimizer state holds {found}, but must hold vectors of one size called "
                f"{list(self.moment_names)} and steps [1]; resume from another checkpoint"
            )
        self.steps = int(steps)
        self.moments = moments
