"""What every stage of a version's way is, and what goes along it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from barnraise.compression.base import Array, Encoded, Reader
from barnraise.controller.state.actions import Slot
from barnraise.core.types import ParameterRange

ReadPayload = Callable[[int], Any]
"""Assignment id -> the payload's bytes."""


class Step(NamedTuple):
    """An update of a range of the parameters, to go along."""

    update: Reader
    where: ParameterRange


@dataclass
class Row:
    """One slot's update: the weighted mean of what a node handed in of a range of the parameters.

    `shares` are those of its contributions, `weight` is its own among the rows.
    """

    slot: Slot
    readers: Sequence[Reader]
    shares: Sequence[float] = ()
    weight: float = 0.0

    @property
    def parameters(self) -> ParameterRange:
        return self.slot.parameters

    @property
    def age(self) -> int:
        """How many versions behind the most belated of its contributions was."""
        return max(held.staleness for held in self.slot.contributions)

    @property
    def largest(self) -> float:
        """No element is larger in magnitude."""
        if len(self.readers) == 1:
            return self.readers[0].largest * self.slot.contributions[0].scale
        return float(sum(abs(factor) * reader.largest for factor, reader in self._factors))

    @property
    def _factors(self) -> Iterable[tuple[float, Reader]]:
        """What each of the contributions is multiplied by in the mean."""
        for share, held, reader in zip(self.shares, self.slot.contributions, self.readers, strict=True):
            yield share * held.scale, reader

    def read(self, start: int, out: Array) -> None:
        """The parameters from `start` on, all of them within its range, into `out` (float32)."""
        start -= self.parameters.start
        if len(self.readers) == 1:
            self.readers[0].read(start, out)
            if (scale := self.slot.contributions[0].scale) != 1.0:
                out *= np.float32(scale)
            return
        out.fill(0)
        for factor, reader in self._factors:
            reader.add(start, out, factor)


@dataclass
class Making:
    """A version that is being made of `slots`: the rows that they become, the parameters that move (`moving`), and the
    delta that says how (`encoded`). The model has `size` parameters."""

    version: int
    slots: Sequence[Slot]
    read: ReadPayload
    rate: float
    scales: Sequence[float]
    size: int
    rows: list[Row] = field(default_factory=list)
    moving: slice = field(default_factory=lambda: slice(0, 0))
    encoded: Encoded | None = None


class Stage:
    """One stage. A subclass overrides what concerns it, and keeps what lasts from version to version.

    `seals`: what follows needs all that the stage was given, so a pass over the chunks ends here. The next begins with
    empty ones, so what the stage was given it must have kept.
    """

    seals: bool = False

    def prepare(self, making: Making) -> None:
        """Settle what it will do, before anything is changed.

        VersionRefusedError, or InputError, when nothing can be done.
        """

    def growth(self, making: Making, largest: float, before: Mapping[str, float], after: dict[str, float]) -> float:
        """No element that leaves the stage is larger, where none that enters it is larger than `largest`.

        Bounds on its `vectors` are `before` the version, and are to be put `after` it.
        """
        return largest

    def begin(self, making: Making) -> None:
        """The version will be made: from here on nothing is refused."""

    def step(self, making: Making, span: slice, values: Array) -> Array:
        """Its turn on the elements `span` of the parameters; may write to `values` (float32), and returns what goes on.
        Any thread takes any span, so neither may depend on another."""
        return values

    def seal(self, making: Making) -> None:
        """All chunks have come so far."""

    def end(self, making: Making) -> None:
        """The version is made: forget what was for it alone."""

    def vectors(self) -> dict[str, Tensor]:
        """What it adds to for ever, so that it must be seen not to overflow, by the names that a refusal uses."""
        return {}

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must hold: live tensors, not copies."""
        return {}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Go back to a checkpoint's tensors, its own among them, which belong to the stage from then on."""
