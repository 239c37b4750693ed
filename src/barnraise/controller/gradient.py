"""The pseudo-gradient of a version: the aggregation rule over what its slots hold, read piece by piece.

All payloads are opened, and what the rule mixes is settled, before anything of the version is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from barnraise.aggregation.base import Array, Combination, Rule
from barnraise.compression.base import Codec, Reader
from barnraise.controller.actions import Held, SlotShare
from barnraise.core.errors import CorruptionError, PayloadError, VersionRefusedError
from barnraise.core.ranges import covers, pieces
from barnraise.core.threads import Crew
from barnraise.core.types import ParameterRange

ReadPayload = Callable[[int], Any]
"""Assignment id -> the payload's bytes."""

CodecOf = Callable[[int, Any, int], Codec]
"""(number, payload, elements) -> the codec that is to open it; PayloadError when there is none."""


@dataclass(frozen=True)
class Update:
    """One slot's update: the weighted mean of what a node handed in of `parameters`."""

    parameters: ParameterRange
    readers: Sequence[Reader]
    shares: Sequence[float]
    weight: float

    @property
    def largest(self) -> float:
        """No element is larger in magnitude."""
        if len(self.readers) == 1:
            return self.readers[0].largest
        return float(sum(abs(share) * reader.largest for share, reader in zip(self.shares, self.readers, strict=True)))

    def read(self, start: int, out: Array) -> None:
        """The parameters from `start` on, all of them within its range, into `out` (float32)."""
        start -= self.parameters.start
        if len(self.readers) == 1:
            self.readers[0].read(start, out)
            return
        out.fill(0)
        for share, reader in zip(self.shares, self.readers, strict=True):
            reader.add(start, out, share)


def opened(
    version: int, slots: Sequence[SlotShare], read: ReadPayload, codec_of: CodecOf, alike: bool, crew: Crew
) -> list[Update]:
    """The updates of those slots that hold some. `alike`: they weigh by their freshness alone.

    Raises VersionRefusedError, naming all contributions that cannot be decoded (`void`) or read (`lost`).
    """
    void: dict[int, str] = {}
    lost: dict[int, str] = {}
    payloads: list[tuple[Held, Any, int]] = []
    for slot in slots:
        for held in slot.contributions:
            try:
                payloads.append((held, read(held.assignment), slot.parameters.stop - slot.parameters.start))
            except CorruptionError as error:
                lost[held.assignment] = str(error)

    def open_one(given: tuple[Held, Any, int]) -> Reader | None:
        held, payload, size = given
        try:
            return codec_of(held.codec, payload, size).open(payload, size)
        except PayloadError as error:
            void[held.assignment] = str(error)
        return None

    readers = crew.each(open_one, payloads)
    if void or lost:
        raise VersionRefusedError(version, void=void, lost=lost)
    following, updates = iter(reader for reader in readers if reader is not None), []
    for slot in slots:
        if slot.contributions:
            weights = [held.weight for held in slot.contributions]
            total = sum(weights)
            shares = [weight / total if total else 0.0 for weight in weights]
            weight = slot.freshness if alike else total
            updates.append(Update(slot.parameters, list(islice(following, len(weights))), shares, weight))
    return updates


@dataclass(frozen=True)
class _Part:
    """A range of the parameters, the updates that cover it, and what the rule makes of them."""

    parameters: ParameterRange
    updates: Sequence[Update]
    combination: Combination
    scale: float | None


class PseudoGradient:
    """What the rule makes of `updates`, for each of the pieces that the ranges of `slots` cut each other into.

    Each of `scales` multiplies the aggregate of one of the pieces, in order, where there are several. A piece whose
    updates are lost, and what lies between two, is zero. InputError where the rule takes no such updates or weights.
    """

    def __init__(
        self,
        rule: Rule,
        slots: Sequence[SlotShare],
        updates: Sequence[Update],
        scales: Sequence[float],
        crew: Crew,
    ) -> None:
        cut = pieces(slot.parameters for slot in slots)
        self.start, self.stop = cut[0].start, cut[-1].stop
        self._parts = []
        for index, piece in enumerate(cut):
            there = [update for update in updates if covers(update.parameters, piece)]
            if there:
                combination = _combined(rule, piece, there, crew)
                scale = float(scales[index]) if scales and len(cut) > 1 else None
                self._parts.append(_Part(piece, there, combination, scale))

    @property
    def largest(self) -> float:
        """No element, and nothing that is summed up to one, is larger in magnitude."""
        bounds = (
            part.combination.bound(np.array([update.largest for update in part.updates]))
            * max(1.0, abs(1.0 if part.scale is None else part.scale))
            for part in self._parts
        )
        return float(np.max([0.0, *bounds]))

    def into(self, start: int, out: Array) -> None:
        """The pseudo-gradient of the parameters from `start` on into `out` (float32)."""
        stop, covered = start + out.size, 0
        for part in self._parts:
            first, last = max(start, part.parameters.start), min(stop, part.parameters.stop)
            if first < last:
                out[covered : first - start] = 0
                target, covered = out[first - start : last - start], last - start
                part.combination.into(first - part.parameters.start, target)
                if part.scale is not None:
                    target *= np.float32(part.scale)
        out[covered:] = 0


def _combined(rule: Rule, piece: ParameterRange, updates: Sequence[Update], crew: Crew) -> Combination:
    def read(row: int, start: int, out: Array) -> None:
        updates[row].read(piece.start + start, out)

    weights = [update.weight for update in updates]
    return Combination(rule, read, len(updates), piece.stop - piece.start, weights, crew=crew)
