"""The published parameters, and the making of their next version from a closed buffer.

Version v+1 is version v plus a decoded delta, in float32, elementwise: every replica that applies the same delta agrees
bit for bit. The part that the downlink codec leaves out stays here as a residual, next to the outer optimizer's state;
both are in the checkpoint. `stages.pipeline` has the stages of a version.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from barnraise.aggregation.base import Rule
from barnraise.compression.base import Codec, Reader
from barnraise.controller.state.actions import Slot
from barnraise.controller.tensors.adder import Adder
from barnraise.controller.tensors.cow_snapshot import CopyOnWriteSnapshot
from barnraise.controller.tensors.stages.arriving import Arrival
from barnraise.controller.tensors.stages.base import Making, ReadPayload, Row, Step, Sum
from barnraise.controller.tensors.stages.opening import Open, Weigh, codec_of
from barnraise.controller.tensors.stages.pipeline import Pipeline, of_payload, of_version
from barnraise.controller.tensors.stages.preserving import Preserve
from barnraise.controller.tensors.stages.publishing import Publish
from barnraise.controller.tensors.stages.reducing import PseudoGradient
from barnraise.controller.tensors.unmasker import Unmasker
from barnraise.core import ranges
from barnraise.core.errors import InputError, PayloadError, VersionRefusedError
from barnraise.core.sketches import sketch
from barnraise.core.threads import SPAN, Crew
from barnraise.core.types import Blob, Contribution, Inspection, PayloadResult, Ranges
from barnraise.training.base import OuterOptimizer

_LARGEST_MULTIPLE = 1 << 22


@dataclass(frozen=True)
class Made:
    """A new version: its number, the digest of its parameters, and the delta that leads to it.

    `left_out`: by the contributions of a masked group that it is made without, why.
    """

    version: int
    digest: str
    delta: Blob
    delta_bytes: memoryview
    parameters: Ranges | None  # the ranges that the delta changes; None: all
    left_out: Mapping[tuple[int, ...], str] = field(default_factory=dict)


class ParameterServer:
    """Owns one float32 vector of d parameters, and moves it from version to version.

    `rule`, `downlink` and `outer` are policies of their families; `codecs` are those of contributions, by their
    numbers. `alike`: nodes weigh alike instead of by their tokens, as their updates are scaled to equal steps
    (FedNova). Moments are published behind the parameters from `moments_start` on. `average`: see `Publish`. An
    `unmasker` makes the sums of masked updates, an `adder` those of encrypted ones, whose `parameters` are digits.
    `parameters` and all of `state` are changed in place: a caller that wants to keep a version freezes it (`watch`) or
    copies it before the next is made. Not thread-safe: one thread makes versions and reads the state. `threads` share
    the work in spans of `chunk` elements or a few more, a multiple of the codecs' blocks.
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
        moments_start: int | None = None,
        average: float = 0.0,
        threads: int = 1,
        chunk: int = SPAN,
        unmasker: Unmasker | None = None,
        adder: Adder | None = None,
    ) -> None:
        self.version, self.codecs, self.outer = version, tuple(codecs), outer
        crew = downlink.crew = Crew(threads)
        self._rule, self._alike = rule, alike
        self.made: Made | None = None  # the newest version, if it was made here
        self._downlink, self._preserve = downlink, Preserve()
        self._publish = Publish(parameters, average, self._preserve.keep, crew)
        self.unmasker, self.adder = unmasker, adder
        self.looks = of_payload(self.codecs, unmasker or adder)
        self.stages = of_version(
            self._preserve,
            self._publish,
            codecs=self.codecs,
            alike=alike,
            rule=rule,
            outer=outer,
            downlink=downlink,
            crew=crew,
            moments_start=moments_start,
        )
        multiple = math.lcm(downlink.multiple, *(codec.multiple for codec in codecs))
        multiple = multiple if multiple <= _LARGEST_MULTIPLE else downlink.multiple
        self._way = Pipeline(self.stages, crew, -(-chunk // multiple) * multiple)

    @property
    def parameters(self) -> Tensor:
        """Return the newest version's parameters."""
        return self._publish.parameters

    @property
    def average(self) -> Tensor:
        """Return the parameters for evaluation and export."""
        return self._publish.average

    @property
    def digest(self) -> str:
        """Return the digest of the newest version's parameters."""
        return self._publish.digest

    @property
    def leaves(self) -> bytes:
        """Return the digests of the leaves of the parameters' digest."""
        return self._publish.leaves

    def watch(self, frozen: CopyOnWriteSnapshot) -> None:
        """Tell the snapshot `frozen` of this version's vectors before they change."""
        self._preserve.watch(frozen)

    def inspect(self, payload: Any, result: PayloadResult, depth: Inspection = "full") -> tuple[float, str]:
        """Return the L2 norm of the update in `payload`, and the payload's defect (empty: none), as seen at `depth`.

        The norm is 0 at another depth than "full".
        """
        arrival = Arrival(result, payload)
        try:
            for stage in self.looks[depth]:
                stage.look(arrival)
        except PayloadError as error:
            return 0.0, str(error)
        return arrival.norm, ""

    def reader(self, payload: Any, offer: Contribution) -> Reader:
        """Return a reader of the update in an inspected `payload`."""
        size = ranges.size(offer.parameters)
        return codec_of(self.codecs, offer.codec, payload, size).open(payload, size, offer.support)

    def movement(self, made: Made) -> Step:
        """Return the step that led to the version."""
        changed = made.parameters or (0, len(self.parameters))
        return Step(self._downlink.open(made.delta_bytes, ranges.size(changed), made.version), changed)

    def sketch(self, payload: Any, offer: Contribution, seed: int) -> bytes:
        """Return a sketch of the update in an inspected `payload`."""
        reader = self.reader(payload, offer)
        return sketch(reader.read, reader.size, seed)

    def candidate(self, version: int, slots: Sequence[Slot], read: ReadPayload) -> tuple[Sequence[Row], PseudoGradient]:
        """Return the rows of slots, and the rule's aggregate of them as `version`, without changing anything.

        For a rule without state, and on any thread: it accepts no other. Raises VersionRefusedError where `aggregate`
        would refuse these slots.
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
        sums: Sequence[Sum] = (),
        masks: Sequence[int] = (),
    ) -> Made:
        """Make `version` from the slots, in their order; `read` gives a contribution's payload.

        `sums` are those of cohorts whose updates have no slots of contributions. With `masks`, the assignments that
        brought sums of masks, the slots' updates are masked: they are summed by groups. `rate` multiplies the outer
        optimizer's learning rate, and each of `scales` the aggregate of one of the ranges into which the ranges of
        slots and sums cut each other, in order. Parameters outside the ranges do not change. A slot
        without contributions has lost them; when all have, the version equals the one before, and no momentum steps.

        Raises VersionRefusedError when payloads cannot be decoded, numbers would not be finite, or the rule takes no
        sums; nothing is changed then.
        """
        assert version == self.version + 1
        left_out: Mapping[tuple[int, ...], str] = {}
        if masks:
            assert self.unmasker is not None, "a masked run has one"
            groups = self.unmasker.sums(version, slots, masks, read)
            slots, sums, left_out = (), groups.sums, groups.left_out
        elif self.adder is not None:  # a rate would be a factor of a ciphertext
            slots, sums = (), self.adder.sums(version, slots, read, self.parameters)
            rate, scales = 1.0, ()
        size, exposed = len(self.parameters), len(left_out)
        making = Making(version, slots, read, rate, scales, size=size, sums=sums, exposed=exposed)
        if sums or any(slot.contributions and not slot.excluded for slot in slots):
            self._way.take(making)
        else:
            self._repeat(making)
        self.version, encoded = version, making.encoded
        assert encoded is not None
        delta = Blob(hashlib.sha256(encoded.payload).hexdigest(), encoded.num_bytes)
        changed = None if making.moving == (0, len(self.parameters)) else making.moving
        self.made = Made(version, self.digest, delta, encoded.payload, changed, left_out)
        return self.made

    def _repeat(self, making: Making) -> None:
        """Make the version before under a new number: a delta of one zero."""
        making.moving, making.encoded = (0, 1), self._downlink.encode(torch.zeros(1), making.version)
        self._preserve.keep(0, 1)
        self._downlink.decode_add(making.encoded, self.parameters[:1])
        self._publish.end(making)

    def state(self) -> dict[str, Tensor]:
        """Return the state for a checkpoint besides the version number: live tensors, not copies."""
        return {name: tensor for stage in self.stages for name, tensor in stage.state().items()}

    def load(self, tensors: dict[str, Tensor], version: int) -> None:
        """Restore a checkpoint's `state()` at `version`; its tensors belong to the server from then on."""
        self.version, self.made = version, None
        for stage in self.stages:
            stage.load(tensors)
        self._way.forget()
