"""The published parameters, and how a closed buffer becomes the next version of them. Tensors live here.

Version v+1 is version v plus a decoded delta, in float32, elementwise: every replica that applies the same delta
agrees bit for bit. What the downlink codec leaves out stays here as a residual, next to the outer optimizer's state;
both are in the checkpoint. The digest of a version is the SHA-256 of its little-endian float32 bytes, so that it names
the snapshot too.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from barnraise.aggregation.base import Rule
from barnraise.compression.base import Codec
from barnraise.compression.catalog import CATALOG
from barnraise.controller.actions import SlotShare
from barnraise.core.errors import CorruptionError, InputError, PayloadError, VersionRefusedError
from barnraise.core.ranges import covers, pieces
from barnraise.core.types import Blob, ParameterRange
from barnraise.models.vectors import digest
from barnraise.training.base import OuterOptimizer

ReadPayload = Callable[[int], Any]
"""Assignment id -> the payload's bytes."""


@dataclass(frozen=True)
class Made:
    """A new version: its number, the digest of its parameters, and the delta that leads to it."""

    version: int
    digest: str
    delta: Blob
    delta_bytes: memoryview
    parameters: ParameterRange | None  # what the delta changes; None: all


class ParameterServer:
    """Holds one float32 vector of d parameters and moves it from version to version.

    `rule`, `downlink` and `outer` are policies of their families; `codecs` are those that contributions may be written
    in, the usual one first. `alike`: nodes weigh alike instead of by their tokens, as their updates are scaled to equal
    steps (FedNova). Versions are immutable tensors: a snapshot that is being sent keeps its own alive. Not thread-safe:
    one thread makes versions and reads the state.

    `average` is what evaluation and export take: a_v = a_{v-1} + (theta_v - a_{v-1}) / (1 + s v), which weights the
    versions by a power of their number (Shamir and Zhang, 2013) and so looks back over about the share s of all of
    them, however long the run. s = 0 is the newest version alone. Workers never see it.
    """

    def __init__(
        self,
        parameters: Tensor,
        version: int,
        *,
        rule: Rule,
        codecs: Sequence[Codec],
        downlink: Codec,
        outer: OuterOptimizer,
        alike: bool = False,
        average: float = 0.0,
    ) -> None:
        self.parameters, self.version = parameters, version
        self.average_share, self.average = average, parameters
        self.rule, self.codecs, self.downlink, self.outer = rule, tuple(codecs), downlink, outer
        self.alike = alike
        self.residual: Tensor | None = None
        self._lossless = CATALOG.entry(downlink.name).declares.lossless
        self.digest = digest(parameters)

    def inspect(self, payload: Any, start: int, stop: int, base: int) -> tuple[float, str]:
        """L2 norm of the payload's update of parameters [start, stop) of version `base`, and what is wrong with it
        (empty: nothing)."""
        try:
            return self._codec_of(payload, stop - start).open(payload, stop - start, base).norm(), ""
        except PayloadError as error:
            return 0.0, str(error)

    def aggregate(
        self,
        version: int,
        slots: Sequence[SlotShare],
        read: ReadPayload,
        rate: float = 1.0,
        scales: Sequence[float] = (),
    ) -> Made:
        """Make `version` from the slots, in their order; `read` gives a contribution's payload.

        `rate` multiplies the outer optimizer's learning rate, and each of `scales` the aggregate of one of the pieces
        that the slots' ranges cut each other into, in order. What lies outside the ranges stays as it is. A slot
        without contributions has lost them; when all have, the version is the one before, and no momentum steps.

        Raises VersionRefusedError when payloads cannot be decoded, or numbers would not be finite; nothing is changed
        then.
        """
        assert version == self.version + 1
        before = {name: tensor.clone() for name, tensor in self.outer.state().items()}
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                return self._make(version, slots, read, rate, scales)
        except (PayloadError, InputError) as error:  # of the downlink codec, or of the aggregation rule
            self.outer.load(before)
            raise VersionRefusedError(version, str(error)) from error
        except VersionRefusedError:
            self.outer.load(before)
            raise

    def _make(
        self, version: int, slots: Sequence[SlotShare], read: ReadPayload, rate: float, scales: Sequence[float]
    ) -> Made:
        """`aggregate`; only the outer optimizer's state has changed when it raises."""
        lost = not any(slot.contributions for slot in slots)
        if lost:
            span, update = slice(0, 1), torch.zeros(1)
        else:
            parts = pieces(slot.parameters for slot in slots)
            span = slice(parts[0].start, parts[-1].stop)
            gradient = self._pseudo_gradient(version, parts, slots, read, scales)
            update = self.outer.step(self.parameters[span], gradient, rate, span, len(self.parameters)).neg_()
            if self.residual is not None:
                update += self.residual[span]
        whole = len(update) == len(self.parameters)
        encoded = self.downlink.encode(update, version)
        decoded = update if self._lossless else self.downlink.decode(encoded)
        left = None if self._lossless else update.sub_(decoded)
        moved = decoded.add_(self.parameters[span])
        if not lost:
            _require_finite(version, "its parameters", moved)
            for name, moment in self.outer.moments.items():
                _require_finite(version, f"the outer optimizer's {name}", moment[span])
        if left is not None and not lost:
            _require_finite(version, "what its downlink codec leaves out", left)
            if self.residual is None:
                self.residual = torch.zeros_like(self.parameters)
            self.residual[span] = left
        if not whole:
            moved, part = self.parameters.clone(), moved
            moved[span] = part
        self.parameters, self.version = moved, version
        self.average = self._averaged()
        self.digest = digest(self.parameters)
        delta = Blob(hashlib.sha256(encoded.payload).hexdigest(), encoded.num_bytes)
        changed = None if whole else ParameterRange(span.start, span.stop)
        return Made(version, self.digest, delta, encoded.payload, changed)

    def _averaged(self) -> Tensor:
        if not self.average_share:
            return self.parameters
        return torch.lerp(self.average, self.parameters, 1.0 / (1.0 + self.average_share * self.version))

    def _pseudo_gradient(
        self,
        version: int,
        parts: Sequence[ParameterRange],
        slots: Sequence[SlotShare],
        read: ReadPayload,
        scales: Sequence[float],
    ) -> Tensor:
        """The aggregation rule over the slots of each piece, from the first piece's start to the last one's stop."""
        slots = [slot for slot in slots if slot.contributions]
        updates = self._updates(version, slots, read)
        if len(parts) == 1:
            return self._combined(slots, updates)
        first = parts[0].start
        gradient = torch.zeros(parts[-1].stop - first)
        for index, part in enumerate(parts):
            there = [at for at, slot in enumerate(slots) if covers(slot.parameters, part)]
            if not there:
                continue  # those that had it are void
            cuts = [slots[at].parameters.start for at in there]
            inside = [updates[at][part.start - cut : part.stop - cut] for at, cut in zip(there, cuts, strict=True)]
            combined = self._combined([slots[at] for at in there], inside)
            if scales:
                combined = combined * scales[index]
            gradient[part.start - first : part.stop - first] = combined
        return gradient

    def _combined(self, slots: Sequence[SlotShare], updates: list[Tensor]) -> Tensor:
        """The aggregation rule over one update of each slot."""
        if self.alike:
            return self.rule(updates, [slot.freshness for slot in slots])
        return self.rule(updates, [sum(weight for _, weight in slot.contributions) for slot in slots])

    def _updates(self, version: int, slots: Sequence[SlotShare], read: ReadPayload) -> list[Tensor]:
        """Each slot's update. Raises VersionRefusedError, naming all contributions that cannot be used."""
        void: dict[int, str] = {}
        lost: dict[int, str] = {}
        updates = [self._slot(slot, read, void, lost) for slot in slots]
        if void or lost:
            raise VersionRefusedError(version, void=void, lost=lost)
        return updates

    def _slot(self, slot: SlotShare, read: ReadPayload, void: dict[int, str], lost: dict[int, str]) -> Tensor:
        """The weighted mean of one node's updates; what cannot be decoded goes to `void`, what cannot be read to
        `lost`."""
        size = slot.parameters.stop - slot.parameters.start
        total = sum(weight for _, weight in slot.contributions)
        mean = torch.zeros(size)
        for assignment, weight in slot.contributions:
            try:
                payload = read(assignment)
                codec = self._codec_of(payload, size)
                if len(slot.contributions) == 1:
                    codec.decode(payload, size, out=mean)
                else:
                    codec.decode_add(payload, mean, weight / total if total else 0.0)
            except PayloadError as error:
                void[assignment] = str(error)
            except CorruptionError as error:
                lost[assignment] = str(error)
        return mean

    def _codec_of(self, payload: Any, size: int) -> Codec:
        """Which of the allowed codecs wrote `payload`; the usual one when none did, which will refuse it."""
        return next((codec for codec in self.codecs if codec.wrote(payload, size)), self.codecs[0])

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must hold besides the version number."""
        tensors = {f"outer.{name}": tensor for name, tensor in self.outer.state().items()}
        tensors["parameters"] = self.parameters
        if self.residual is not None:
            tensors["residual"] = self.residual.clone()
        if self.average_share:
            tensors["average"] = self.average
        return tensors

    def load(self, tensors: dict[str, Tensor], version: int) -> None:
        """Go back to a checkpoint's `state()` at `version`."""
        self.parameters, self.version = tensors["parameters"], version
        self.residual = tensors.get("residual")
        self.average = tensors.get("average", self.parameters) if self.average_share else self.parameters
        outer = {name.removeprefix("outer."): t for name, t in tensors.items() if name.startswith("outer.")}
        self.outer.load(outer)
        self.digest = digest(self.parameters)


def _require_finite(version: int, what: str, values: Tensor) -> None:
    """VersionRefusedError unless all of `values` are."""
    if not all(math.isfinite(value) for value in torch.aminmax(values)):
        raise VersionRefusedError(version, f"{what} would not be finite")
