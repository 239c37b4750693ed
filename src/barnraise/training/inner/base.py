"""The interface of inner optimizers: steps on the flat vector of the parameters, and momentum that follows the fleet.

A *direction* is a movement of the parameters divided by the sum of the learning rates of its steps, downhill: the mean
step at a rate of 1. The versions tell the direction in which the whole fleet moves. A worker's own momentum is the mean
of its own gradients; their noise makes it wander, and the mean over all workers has lost most of that noise. So a
worker may continue with the momentum that makes the fleet's steps (`follow`), and a stateless task begins with it
(`expect`). Each optimizer says in `momentum_of` which momentum that is. Karimireddy et al. 2021 ("Mime") and Xu et al.
2021 ("FedCM") send the momentum itself, at as many bytes as the parameters have.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from barnraise.models.exchange.layout import Layout, Leaf
from barnraise.training.catalog import ALL

Range = tuple[slice, bool]
"""A range of the flat vector, and whether its values decay."""


def decay_ranges(leaves: Sequence[Leaf], decays: str) -> list[Range]:
    """Return the ranges of `leaves`, in their order, and whether weight decay applies; neighbours alike are joined.

    Biases, the weights of norms and other parameters of one axis decay only if `decays` is "all".

    >>> from barnraise.models.exchange.layout import Layout
    >>> decay_ranges(Layout.of([("a", (2, 2)), ("b", (2,)), ("c", (3,))]).leaves, "matrices")
    [(slice(0, 4, None), True), (slice(4, 9, None), False)]
    """
    ranges = list[Range]()
    for leaf in leaves:
        place, decayed = leaf.place, decays == ALL or len(leaf.shape) > 1
        if ranges and ranges[-1][0].stop == place.start and ranges[-1][1] == decayed:
            place = slice(ranges.pop()[0].start, place.stop)
        ranges.append((place, decayed))
    return ranges


def within(ranges: Sequence[Range], place: slice) -> Iterator[Range]:
    """Yield the parts of `ranges` inside `place`, counted from its start."""
    for own, decayed in ranges:
        start, stop = max(own.start, place.start), min(own.stop, place.stop)
        if start < stop:
            yield slice(start - place.start, stop - place.start), decayed


class Parameters(Protocol):
    """The parameters and their gradient, both float32 [d], on the device where the optimizer steps."""

    vector: Tensor
    gradient: Tensor
    layout: Layout


class InnerOptimizer(ABC):
    """Base class of inner optimizers: each step turns the gradient into a step of the parameters, in place.

    The state is `moments`, tensors that are made at the first step, and the number of `steps` that they count as. The
    first of `moment_names` is the momentum, [d]. Not thread-safe.
    """

    moment_names: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.moments: dict[str, Tensor] = {}
        self.steps = 0.0

    def bind(self, flat: Parameters, decays: str = ALL) -> None:
        """Take steps on `flat` from here on, without state; `decays`: which parameters weight decay applies to."""
        self.vector, self.gradient, self.layout = flat.vector, flat.gradient, flat.layout
        self.ranges = decay_ranges(flat.layout.leaves, decays)
        self.forget()

    def step(self, rate: float) -> None:
        """Take one step at the learning rate `rate`; the gradient may be overwritten."""
        for _ in self.step_by_piece(rate):
            pass

    def step_by_piece(self, rate: float) -> Iterator[slice]:
        """Take one step, and yield each place before its gradient is read; the parameters of earlier ones are done."""
        if not self.moments:
            self._begin(self.zeros())
        self.steps += 1.0
        yield from self.apply(rate)

    @abstractmethod
    def apply(self, rate: float) -> Iterator[slice]:
        """Take the step as `step_by_piece` says; `steps` counts it, and the moments are there."""

    @abstractmethod
    def momentum_of(self, direction: Tensor, like: Tensor) -> Tensor:
        """Return the momentum whose steps lead into `direction`, [d], which it may overwrite.

        `like` is a worker's own momentum, whose length tells how long gradients are.
        """

    @property
    @abstractmethod
    def decay(self) -> float:
        """Return the decay of the momentum."""

    @property
    def ramp_steps(self) -> int:
        """Return the steps over which a new worker's rate should rise; 1: its first steps are no longer than others."""
        return 1

    @property
    def noise(self) -> float:
        """Return the length of the momentum of pure-noise gradients, in lengths of one gradient.

        It is the root of (1 - b) / (1 + b), where b is the decay, for a momentum that is a mean.
        """
        return math.sqrt((1.0 - self.decay) / (1.0 + self.decay))

    def zeros(self) -> dict[str, Tensor]:
        """Return the moments before the first step."""
        return {name: torch.zeros_like(self.vector) for name in self.moment_names}

    def prepare(self) -> None:  # noqa: B027 (most need none)
        """Prepare for steps with the present moments, which were just made or replaced."""

    def follow(self, direction: Tensor, share: float) -> None:
        """Give `share` of the momentum to the fleet's, whose steps lead into `direction`, [d].

        Never longer than the momentum that it replaces, so that a slow node does not run after a fast fleet. Nothing
        changes where the direction is not finite; the host does not wait to know it.
        """
        if not self.moments or not self.moment_names:
            return
        own, sound = self.moments[self.moment_names[0]], torch.linalg.vector_norm(direction).isfinite()
        wanted = shortened(self.momentum_of(direction, own), torch.linalg.vector_norm(own))
        own.lerp_(torch.where(sound, wanted, own), share)

    def expect(self, direction: Tensor | None, second: Tensor | None, steps: float) -> None:
        """Begin as if `steps` steps into `direction`, [d], had led here, with second moments of `second`, [d].

        The optimizer takes what it keeps; without a `direction` the momentum is 0.
        """
        if self.moment_names:
            self._begin(self.zeros())
            self.steps = steps

    def second_moments(self) -> Tensor | None:
        """Return the expected second moments, float32 [d]; None before a step, or if it keeps none."""
        return None

    def forget(self) -> None:
        """Drop the state: the next step is taken as a new worker's first."""
        self.moments, self.steps = {}, 0.0

    def state(self) -> dict[str, Tensor]:
        """Return the state by name, on the CPU, shared where possible; empty before the first step."""
        if not self.moments:
            return {}
        return {name: tensor.cpu() for name, tensor in self.moments.items()} | {"step": torch.tensor(self.steps)}

    def load(self, state: Mapping[str, Tensor]) -> bool:
        """Continue from the `state` of another process; False, without a change, when it does not fit."""
        wanted = {name: (tensor.shape, tensor.dtype) for name, tensor in self.zeros().items()}
        wanted["step"] = (torch.Size(), torch.float32)
        if len(wanted) == 1 or {name: (tensor.shape, tensor.dtype) for name, tensor in state.items()} != wanted:
            return False
        if not all(bool(tensor.isfinite().all()) for tensor in state.values()):
            return False
        self._begin({name: state[name].to(self.vector.device) for name in wanted if name != "step"})
        self.steps = float(state["step"])
        return True

    def _begin(self, moments: dict[str, Tensor]) -> None:
        self.moments, self.steps = moments, 0.0
        if moments:
            self.prepare()


class SignedOptimizer(InnerOptimizer):
    """Base class of optimizers whose steps do not tell how long the gradients were: Lion and Muon.

    They find the fleet's momentum from its direction and the length of their own. A stateless task has none of its own;
    its first gradient tells the length.
    """

    def __init__(self) -> None:
        super().__init__()
        self._expected: Tensor | None = None

    def step_by_piece(self, rate: float) -> Iterator[slice]:
        if self._expected is not None:
            yield slice(0, len(self.vector))
            like = self.gradient * self.noise
            fleet = self.momentum_of(self._expected, like)
            self.moments[self.moment_names[0]].copy_(shortened(fleet, torch.linalg.vector_norm(like)))
            self._expected = None
        yield from super().step_by_piece(rate)

    def expect(self, direction: Tensor | None, second: Tensor | None, steps: float) -> None:
        super().expect(direction, second, steps)
        self._expected = direction

    def forget(self) -> None:
        super().forget()
        self._expected = None


def shortened(vector: Tensor, longest: Tensor) -> Tensor:
    """Scale `vector` down, in place, to a norm of `longest` at most."""
    return vector.mul_((longest / (torch.linalg.vector_norm(vector) + 1e-30)).clamp_(max=1.0))
