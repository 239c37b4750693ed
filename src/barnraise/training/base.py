"""What every outer optimizer is: the aggregate of a version goes in, what to subtract from the parameters comes out.

The pseudo-gradient g is local start minus local end, averaged, so it points uphill like a gradient, and everywhere

    theta <- theta - update,    update = step(theta, g).

Each operation on tensors is elementwise and rounds once (no fused multiply-add such as `add(x, alpha=a)`), so replay
gives the same bits with any number of threads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor

from barnraise.core.errors import CorruptionError


class OuterOptimizer(ABC):
    """One outer optimizer over one flat float32 vector [d].

    Its state is `moments`, vectors [d] made at the first step, and `steps`, how many were taken.
    """

    moment_names: tuple[str, ...] = ()

    def __init__(self, learning_rate: float) -> None:
        self.learning_rate = learning_rate
        self.steps = 0
        self.moments: dict[str, Tensor] = {}

    def step(
        self, parameters: Tensor, pseudo_gradient: Tensor, rate: float = 1.0, span: slice | None = None, size: int = 0
    ) -> Tensor:
        """The update [d], new memory, for one version; called once a version, in the order of versions.

        `parameters` and `pseudo_gradient` [d] are left as they are. `rate` multiplies the learning rate (a schedule).
        Where they are the part `span` of a vector of `size`, only that part of the moments takes the step.
        """
        assert parameters.shape == pseudo_gradient.shape
        if not self.moments:
            self.moments = {name: torch.zeros(size or len(pseudo_gradient)) for name in self.moment_names}
        self.steps += 1
        whole = self.moments
        if span is not None:
            self.moments = {name: moment[span] for name, moment in whole.items()}
        update = self.update(parameters, pseudo_gradient, self.learning_rate * rate)
        self.moments = whole
        return update

    @abstractmethod
    def update(self, parameters: Tensor, pseudo_gradient: Tensor, learning_rate: float) -> Tensor:
        """Advance the moments and return the update; `steps` already counts this step."""

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint keeps: the live moments (not copies) and `steps` [1]."""
        return {**self.moments, "steps": torch.tensor([self.steps])}

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state`, which is copied. CorruptionError when it is not one of this optimizer's."""
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
        self.moments = {name: tensor.clone() for name, tensor in moments.items()}
