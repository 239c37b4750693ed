"""The base class of a version's stages, and the objects that pass through them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from torch import Tensor

from barnraise.compression.base import Array, Encoded, Reader
from barnraise.controller.state.actions import Slot
from barnraise.core import ranges
from barnraise.core.errors import InputError
from barnraise.core.types import Ranges

ReadPayload = Callable[[int], Any]
"""Assignment id -> the payload's bytes."""


class Step(NamedTuple):
    """An update of ranges of the parameters, as a step along it."""

    update: Reader
    where: Ranges


@dataclass
class Row:
    """One slot's update: the weighted mean of a node's contributions for the same ranges of the parameters.

    `shares` are those of its contributions, `weight` is its own among the rows.
    """

    slot: Slot
    readers: Sequence[Reader]
    shares: Sequence[float] = ()
    weight: float = 0.0

    @property
    def parameters(self) -> Ranges:
        return self.slot.parameters

    @property
    def nodes(self) -> Sequence[str]:
        """Return the nodes behind the row: one."""
        return (self.slot.node,)

    @property
    def trust(self) -> float:
        """Return the trust of its node."""
        return self.slot.trust

    @property
    def age(self) -> int:
        """Return the staleness of the oldest of its contributions."""
        return max(held.staleness for held in self.slot.contributions)

    @property
    def largest(self) -> float:
        """Return an upper bound of the elements' magnitudes."""
        if len(self.readers) == 1:
            return self.readers[0].largest * self.slot.contributions[0].scale
        return float(sum(abs(factor) * reader.largest for factor, reader in self._factors))

    @property
    def _factors(self) -> Iterable[tuple[float, Reader]]:
        """Return the factor of each contribution in the mean."""
        for share, held, reader in zip(self.shares, self.slot.contributions, self.readers, strict=True):
            yield share * held.scale, reader

    def read(self, start: int, out: Array) -> None:
        """Read the parameters from `start` on, all of them within one of its ranges, into `out` (float32)."""
        start = ranges.place_of(self.parameters, start)
        if len(self.readers) == 1:
            self.readers[0].read(start, out)
            if (scale := self.slot.contributions[0].scale) != 1.0:
                out *= np.float32(scale)
            return
        out.fill(0)
        for factor, reader in self._factors:
            reader.add(start, out, factor)


class Vector(Protocol):
    """A float32 vector that is read span by span, such as a payload's `compression.base.Reader`."""

    @property
    def largest(self) -> float:
        """Return an upper bound of the elements' magnitudes."""

    def read(self, start: int, out: Array) -> None:
        """Read the elements from `start` on into `out` (float32)."""


@dataclass(frozen=True)
class Whole:
    """A vector in memory, float32 [d], as the total of a sum."""

    values: Array

    @property
    def largest(self) -> float:
        """Return the largest magnitude."""
        return float(np.abs(self.values).max(initial=0.0))

    def read(self, start: int, out: Array) -> None:
        """Read the elements from `start` on."""
        np.copyto(out, self.values[start : start + out.size])


@dataclass(frozen=True)
class Sum:
    """The weighted sum of a cohort's updates of ranges of the parameters, in place of their rows.

    `total` reads sum_i w_i x_i over the concatenated ranges, `weight` is sum_i w_i in the unit of the rows' weights.
    `nodes` are those whose updates are in it, `ages` [nodes] their staleness. A rule reads it as one row: the mean of
    the cohort, of the cohort's weight. `grouped`: the cohort is one of the random groups that a rule may read in place
    of nodes. InputError unless the weight is positive and there are nodes.
    """

    parameters: Ranges
    total: Vector
    weight: float
    nodes: Sequence[str]
    ages: Sequence[int]
    grouped: bool = False

    def __post_init__(self) -> None:
        if not 0.0 < self.weight < math.inf:
            raise InputError(f"a sum of weight {self.weight}, but its weights must add up to a positive number")
        if not self.nodes or len(self.nodes) != len(self.ages):
            raise InputError(f"a sum of {len(self.nodes)} nodes with {len(self.ages)} ages; give each node and its age")

    @property
    def trust(self) -> float:
        """Return 1: the weights in the sum hold the trust of its nodes."""
        return 1.0

    @property
    def age(self) -> int:
        """Return the staleness of the oldest update in it."""
        return max(self.ages)

    @property
    def largest(self) -> float:
        """Return an upper bound of the mean's elements."""
        return self.total.largest / self.weight

    def read(self, start: int, out: Array) -> None:
        """Read the mean of the cohort from parameter `start` on, within one of its ranges, into `out` (float32)."""
        self.total.read(ranges.place_of(self.parameters, start), out)
        out /= np.float32(self.weight)


Input: TypeAlias = Row | Sum
"""A row that the aggregation rule reads: one node's update, or the mean of a cohort whose updates are known as a sum.
"""


@dataclass
class Making:
    """A version that is being made of `slots`.

    The rows of the slots, the `sums` of cohorts whose rows are not known, the parameters that move (`moving`), and the
    delta (`encoded`). The model has `size` parameters. `exposed` groups have an attacker each and are left out.
    """

    version: int
    slots: Sequence[Slot]
    read: ReadPayload
    rate: float
    scales: Sequence[float]
    size: int
    sums: Sequence[Sum] = ()
    exposed: int = 0
    rows: list[Row] = field(default_factory=list)
    moving: Ranges = ()
    encoded: Encoded | None = None

    @property
    def inputs(self) -> Sequence[Input]:
        """Return all that the aggregation rule reads: the rows, then the sums."""
        return [*self.rows, *self.sums]

    def parts(self, span: slice) -> Iterator[tuple[slice, slice]]:
        """Yield the moving elements `span` part by part: as a slice of the parameters, and as one of the span."""
        for part in ranges.parts(self.moving, span.start, span.stop):
            yield part.here, slice(part.place - span.start, part.place - span.start + part.stop - part.start)


class Stage:
    """One stage of a version.

    A subclass overrides the methods that it needs, and keeps state from version to version. `seals`: the next stage
    needs the whole output, so a pass over the chunks ends here. The next pass begins with empty chunks, so the stage
    must have kept its input.
    """

    seals: bool = False

    def prepare(self, making: Making) -> None:
        """Prepare its work, before anything is changed.

        VersionRefusedError, or InputError, when it cannot be done.
        """

    def growth(self, making: Making, largest: float, before: Mapping[str, float], after: dict[str, float]) -> float:
        """Return an upper bound of the elements that leave the stage, if those that enter are up to `largest`.

        Bounds on its `vectors` are `before` the version, and are to be put `after` it.
        """
        return largest

    def begin(self, making: Making) -> None:
        """Begin the version, which will be made: from here on nothing is refused."""

    def step(self, making: Making, span: slice, values: Array) -> Array:
        """Process the moving elements `span`; may write to `values` (float32), and returns the result.

        `making.parts` gives the parameters that they are. Any thread takes any span, so neither may depend on another.
        """
        return values

    def seal(self, making: Making) -> None:
        """End a pass, in which all chunks have come."""

    def end(self, making: Making) -> None:
        """End the version: drop its data."""

    def vectors(self) -> dict[str, Tensor]:
        """Return vectors that grow without bound, which are checked for overflow, by their names in a refusal."""
        return {}

    def state(self) -> dict[str, Tensor]:
        """Return the state for a checkpoint: live tensors, not copies."""
        return {}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore a checkpoint's tensors, its own among them, which belong to the stage from then on."""
