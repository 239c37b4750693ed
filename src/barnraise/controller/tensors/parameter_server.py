"""The published parameters, and how a closed buffer becomes the next version of them. Tensors live here.

Version v+1 is version v plus a decoded delta, in float32, elementwise: every replica that applies the same delta
agrees bit for bit. What the downlink codec leaves out stays here as a residual, next to the outer optimizer's state;
both are in the checkpoint. `version.way` has the stages that a version goes through.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from barnraise.aggregation.base import Rule
from barnraise.compression.base import Codec, Reader
from barnraise.controller.state.actions import Slot
from barnraise.controller.tensors.cow_snapshot import CopyOnWriteSnapshot
from barnraise.controller.tensors.stages.arriving import Arrival
from barnraise.controller.tensors.stages.base import Making, ReadPayload, Row, Step
from barnraise.controller.tensors.stages.opening import Open, Weigh, codec_of
from barnraise.controller.tensors.stages.pipeline import Pipeline, of_contribution, of_version
from barnraise.controller.tensors.stages.preserving import Preserve
from barnraise.controller.tensors.stages.publishing import Publish
from barnraise.controller.tensors.stages.reducing import PseudoGradient
from barnraise.core.errors import InputError, PayloadError, VersionRefusedError
from barnraise.core.sketches import sketch
from barnraise.core.threads import SPAN, Crew
from barnraise.core.types import Blob, Contribution, ParameterRange
from barnraise.training.base import OuterOptimizer

_LARGEST_MULTIPLE = 1 << 22


@dataclass(frozen=True)
class Made:
    """A new version: its number, the digest of its parameters, and the delta that leads to it."""

    version: int
    digest: str
    delta: Blob
    delta_bytes: memoryview
    parameters: ParameterRange | None  # what the delta changes; None: all


class ParameterServer:
    """Holds one float32 vector of d parameters, which is its own from then on, and moves it from version to version.

    `rule`, `downlink` and `outer` are policies of their families; `codecs` are those that contributions may be written
    in, by the number that they name. `alike`: nodes weigh alike instead of by their tokens, as their updates are scaled
    to equal steps (FedNova). `shared` is where moments start that are published behind the parameters. `average`: see
    `Publish`. `parameters` and all of `state` are changed in place: who wants to keep a version freezes it (`watch`) or
    copies it before the next is made. Not thread-safe: one thread makes versions and reads the state. `threads` share
    the work in spans of `chunk` elements or a few more, a multiple of what the codecs decode and encode together.
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
        shared: int | None = None,
        average: float = 0.0,
        threads: int = 1,
        chunk: int = SPAN,
    ) -> None:
        self.version, self.codecs, self.outer = version, tuple(codecs), outer
        crew = downlink.crew = Crew(threads)
        self._rule, self._alike = rule, alike
        self.made: Made | None = None  # the newest version, if it was made here
        self._downlink, self._preserve = downlink, Preserve()
        self._publish = Publish(parameters, average, self._preserve.keep, crew)
        self.looks = of_contribution(self.codecs)
        self.stages = of_version(
            self._preserve,
            self._publish,
            codecs=self.codecs,
            alike=alike,
            rule=rule,
            outer=outer,
            downlink=downlink,
            crew=crew,
            shared=shared,
        )
        multiple = math.lcm(downlink.multiple, *(codec.multiple for codec in codecs))
        multiple = multiple if multiple <= _LARGEST_MULTIPLE else downlink.multiple
        self._way = Pipeline(self.stages, crew, -(-chunk // multiple) * multiple)

    @property
    def parameters(self) -> Tensor:
        """The newest version's."""
        return self._publish.parameters

    @property
    def average(self) -> Tensor:
        """What evaluation and export take."""
        return self._publish.average

    @property
    def digest(self) -> str:
        """Of the newest version's parameters."""
        return self._publish.digest

    @property
    def leaves(self) -> bytes:
        """The digests of the leaves of the parameters' digest."""
        return self._publish.leaves

    def watch(self, frozen: CopyOnWriteSnapshot) -> None:
        """Vectors of this version are frozen: tell `frozen` before they change."""
        self._preserve.watch(frozen)

    def inspect(self, payload: Any, offer: Contribution) -> tuple[float, str]:
        """L2 norm of the update that `payload` holds as `offer` says, and what is wrong with it (empty: nothing)."""
        arrival = Arrival(offer, payload)
        try:
            for stage in self.looks:
                stage.look(arrival)
        except PayloadError as error:
            return 0.0, str(error)
        return arrival.norm, ""

    def reader(self, payload: Any, offer: Contribution) -> Reader:
        """Of the update that `payload`, which was inspected, holds."""
        size = offer.parameters.stop - offer.parameters.start
        return codec_of(self.codecs, offer.codec, payload, size).open(payload, size, offer.base)

    def movement(self, made: Made) -> Step:
        """What led to the version."""
        changed = made.parameters or ParameterRange(0, len(self.parameters))
        return Step(self._downlink.open(made.delta_bytes, changed.stop - changed.start, made.version), changed)

    def sketch(self, payload: Any, offer: Contribution, seed: int) -> bytes:
        """Of the same."""
        reader = self.reader(payload, offer)
        return sketch(reader.read, reader.size, seed)

    def candidate(self, version: int, slots: Sequence[Slot], read: ReadPayload) -> tuple[Sequence[Row], PseudoGradient]:
        """The rows that slots become, and what the rule would make of them as `version`; nothing is changed.

        For a rule that keeps nothing from version to version, and on any thread: it takes no other. Raises
        VersionRefusedError where `aggregate` would refuse these slots.
        """
        assert not self._rule.keeps
        crew = Crew()
        making = Making(version, slots, read, 1.0, (), size=len(self.parameters))
        try:
            for stage in (Open(self.codecs, crew), Weigh(self._alike)):
                stage.prepare(making)
            return making.rows, PseudoGradient(self._rule, making, {}, {}, crew)
        except InputError as error:
            raise VersionRefusedError(version, str(error)) from error

    def aggregate(
        self,
        version: int,
        slots: Sequence[Slot],
        read: ReadPayload,
        rate: float = 1.0,
        scales: Sequence[float] = (),
    ) -> Made:
        """Make `version` from the slots, in their order; `read` gives a contribution's payload.

        `rate` multiplies the outer optimizer's learning rate, and each of `scales` the aggregate of one of the ranges
        that those of the slots cut each other into, in order. What lies outside the ranges stays as it is. A slot
        without contributions has lost them; when all have, the version is the one before, and no momentum steps.

        Raises VersionRefusedError when payloads cannot be decoded, or numbers would not be finite; nothing is changed
        then.
        """
        assert version == self.version + 1
        making = Making(version, slots, read, rate, scales, size=len(self.parameters))
        if any(slot.contributions and not slot.excluded for slot in slots):
            self._way.take(making)
        else:
            self._repeat(making)
        self.version, encoded = version, making.encoded
        assert encoded is not None
        delta = Blob(hashlib.sha256(encoded.payload).hexdigest(), encoded.num_bytes)
        whole = making.moving.stop - making.moving.start == len(self.parameters)
        changed = None if whole else ParameterRange(making.moving.start, making.moving.stop)
        self.made = Made(version, self.digest, delta, encoded.payload, changed)
        return self.made

    def _repeat(self, making: Making) -> None:
        """The version before, under a new number: a delta of one zero."""
        making.moving, making.encoded = slice(0, 1), self._downlink.encode(torch.zeros(1), making.version)
        self._preserve.keep(0, 1)
        self._downlink.decode_add(making.encoded, self.parameters[:1])
        self._publish.end(making)

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must hold besides the version number: live tensors, not copies."""
        return {name: tensor for stage in self.stages for name, tensor in stage.state().items()}

    def load(self, tensors: dict[str, Tensor], version: int) -> None:
        """Go back to a checkpoint's `state()` at `version`; its tensors belong to the server from then on."""
        self.version, self.made = version, None
        for stage in self.stages:
            stage.load(tensors)
        self._way.forget()
