"""The published parameters, and how a closed buffer becomes the next version of them. Tensors live here.

Version v+1 is version v plus a decoded delta, in float32, elementwise: every replica that applies the same delta
agrees bit for bit. What the downlink codec leaves out stays here as a residual, next to the outer optimizer's state;
both are in the checkpoint.

A version is made in place, in one pass over fixed chunks, by several threads: of each chunk the slots are decoded and
combined, the outer optimizer steps, and what it and the residual ask for is encoded, decoded again and added. So beside
parameters, moments and residual there are payloads and a few chunks, whatever the model's size and the number of nodes.
A downlink codec that must see all before it writes (top-k, one exponent for all) takes a second pass: the first puts
into the residual what is to be sent.

What is done in place cannot be taken back. So whether it can be done is settled before: payloads are opened, and how
large any number could become is bounded by what was sent and by the largest that is here.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from barnraise.aggregation.base import Rule
from barnraise.compression.base import Array, Codec, Encoded, Reader, Writer
from barnraise.compression.catalog import CATALOG
from barnraise.controller.actions import SlotShare
from barnraise.controller.frozen import Frozen
from barnraise.controller.gradient import PseudoGradient, ReadPayload, opened
from barnraise.core.errors import InputError, PayloadError, VersionRefusedError
from barnraise.core.threads import SERIAL, SPAN, Crew, spans
from barnraise.core.types import Blob, ParameterRange
from barnraise.models.vectors import Leaves, largest
from barnraise.training.base import OuterOptimizer

_LARGEST_MULTIPLE = 1 << 22
_RESIDUAL = "what its downlink codec leaves out"
_LIMIT = 0.99 * float(np.finfo(np.float32).max)  # a bound is sums of a few roundings
_CODED = 1.01  # times the largest that was encoded: what a codec decodes it to, at most


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
    in, the usual one first. `alike`: nodes weigh alike instead of by their tokens, as their updates are scaled to equal
    steps (FedNova). `parameters`, `residual` and `average` are changed in place: who wants to keep a version freezes it
    (`watch`) or copies it before the next is made. Not thread-safe: one thread makes versions and reads the state.
    `threads` share the work in pieces of `chunk` elements or a few more, a multiple of what the codecs decode together.

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
        threads: int = 1,
        chunk: int = SPAN,
    ) -> None:
        self.parameters, self.version = parameters, version
        self.average_share, self.average = average, parameters.clone() if average else parameters
        self.rule, self.codecs, self.downlink, self.outer = rule, tuple(codecs), downlink, outer
        self.alike = alike
        self.residual: Tensor | None = None
        self.lossless = CATALOG.entry(downlink.name).declares.lossless
        multiple = math.lcm(downlink.multiple, *(codec.multiple for codec in codecs))
        multiple = multiple if multiple <= _LARGEST_MULTIPLE else downlink.multiple
        self._chunk = -(-chunk // multiple) * multiple
        self._crew = Crew(threads)
        self._leaves = Leaves(self._crew)
        self._frozen: list[Frozen] = []
        downlink.crew = self._crew
        self._bounds: dict[str, float] = {}  # no element of the state's vectors is larger
        self.digest = self._leaves.digest(parameters)

    @property
    def leaves(self) -> bytes:
        """The digests of the leaves of the parameters' digest."""
        return self._leaves.listed

    def watch(self, frozen: Frozen) -> None:
        """Vectors of this version are frozen: tell `frozen` before they change."""
        self._frozen = [*(each for each in self._frozen if not each.over), frozen]

    def keep(self, start: int, stop: int) -> None:
        """Elements [start, stop) of the vectors are about to change."""
        for frozen in self._frozen:
            frozen.keep(start, stop)

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
        if not any(slot.contributions for slot in slots):
            encoded = self.downlink.encode(torch.zeros(1), version)
            self.keep(0, 1)
            self.downlink.decode_add(encoded, self.parameters[:1])
            return self._made(version, slice(0, 1), encoded)
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                updates = opened(version, slots, read, self._codec_of, self.alike, self._crew)
                gradient = PseudoGradient(self.rule, slots, updates, scales, self._crew)
                bound = gradient.largest
            writer = self.downlink.writer(gradient.stop - gradient.start, version)
        except InputError as error:  # of the aggregation rule, or of the downlink codec
            raise VersionRefusedError(version, str(error)) from error
        self._bounds = self._bounded(version, bound, rate)
        self.outer.begin(len(self.parameters))
        first = self.residual is None
        if first and not self.lossless:
            self.residual = torch.zeros_like(self.parameters)
        span = slice(gradient.start, gradient.stop)
        making = _Making(self, span, gradient, rate, carry=not first)
        if self.downlink.piecewise:
            self._crew.each(lambda piece: making.write(piece, writer), spans(writer.size, self._chunk))
            encoded = writer.finish()
        else:
            assert self.residual is not None
            self._crew.each(making.collect, spans(writer.size, self._chunk))
            encoded = writer.whole(self.residual[span].numpy())
            reader = self.downlink.open(encoded, writer.size, version)
            self._crew.each(lambda piece: making.send(piece, reader), spans(writer.size, self._chunk))
        return self._made(version, span, encoded)

    def _made(self, version: int, span: slice, encoded: Encoded) -> Made:
        """The parameters `span` have moved by what `encoded` decodes to."""
        self.version = version
        self.digest = self._leaves.digest(self.parameters, span)
        if self.average_share:
            self._crew.each(self._move_average, spans(len(self.average), SERIAL))
        delta = Blob(hashlib.sha256(encoded.payload).hexdigest(), encoded.num_bytes)
        whole = span.stop - span.start == len(self.parameters)
        changed = None if whole else ParameterRange(span.start, span.stop)
        return Made(version, self.digest, delta, encoded.payload, changed)

    def _move_average(self, piece: slice) -> None:
        self.keep(piece.start, piece.stop)
        weight = 1.0 / (1.0 + self.average_share * self.version)
        self.average[piece].lerp_(self.parameters[piece], weight)

    def _bounded(self, version: int, gradient: float, rate: float) -> dict[str, float]:
        """Bounds on the state after a step with a pseudo-gradient of at most `gradient`.

        They grow from version to version, whatever the numbers do; only before it refuses the numbers are looked at.
        Raises VersionRefusedError when they could leave float32's range.
        """
        vectors = self._vectors()
        if not self._bounds.keys() >= vectors.keys() or _unbounded(self._growth(self._bounds, gradient, rate)):
            self._bounds = {name: largest(vector, self._crew) for name, vector in vectors.items()}
        after = self._growth(self._bounds, gradient, rate)
        if name := _unbounded(after):
            raise VersionRefusedError(version, f"{name} would not be finite")
        return after

    def _vectors(self) -> dict[str, Tensor]:
        """What a version changes, by the names that a refusal uses."""
        vectors = {f"the outer optimizer's {name}": moment for name, moment in self.outer.moments.items()}
        residual = {} if self.residual is None else {_RESIDUAL: self.residual}
        return {"its parameters": self.parameters} | residual | vectors

    def _growth(self, before: Mapping[str, float], gradient: float, rate: float) -> dict[str, float]:
        moments = {name: before.get(f"the outer optimizer's {name}", 0.0) for name in self.outer.moment_names}
        update, moments = self.outer.growth(gradient, moments, rate)
        sent = update + before.get(_RESIDUAL, 0.0)
        after = {"the aggregate": gradient, "its parameters": before["its parameters"] + _CODED * sent}
        if not self.lossless:
            after[_RESIDUAL] = sent + _CODED * sent
        return after | {f"the outer optimizer's {name}": moment for name, moment in moments.items()}

    def _codec_of(self, payload: Any, size: int) -> Codec:
        """Which of the allowed codecs wrote `payload`; the usual one when none did, which will refuse it."""
        return next((codec for codec in self.codecs if codec.wrote(payload, size)), self.codecs[0])

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must hold besides the version number: live tensors, not copies."""
        tensors = {f"outer.{name}": tensor for name, tensor in self.outer.state().items()}
        tensors["parameters"] = self.parameters
        if self.residual is not None:
            tensors["residual"] = self.residual
        if self.average_share:
            tensors["average"] = self.average
        return tensors

    def load(self, tensors: dict[str, Tensor], version: int) -> None:
        """Go back to a checkpoint's `state()` at `version`; its tensors belong to the server from then on."""
        self.parameters, self.version = tensors["parameters"], version
        self.residual, self._bounds = tensors.get("residual"), {}
        self.average = self.parameters
        if self.average_share:
            self.average = tensors["average"] if "average" in tensors else self.parameters.clone()
        outer = {name.removeprefix("outer."): t for name, t in tensors.items() if name.startswith("outer.")}
        self.outer.load(outer)
        self.digest = self._leaves.digest(self.parameters)


class _Making:
    """What is done to each chunk of the parameters `span`. `carry`: the residual holds something from before."""

    def __init__(
        self, server: ParameterServer, span: slice, gradient: PseudoGradient, rate: float, *, carry: bool
    ) -> None:
        self._start, self._gradient, self._rate, self._outer = span.start, gradient, rate, server.outer
        self._keep = server.keep
        self._parameters = server.parameters.numpy()[span]
        self._residual = None if server.residual is None else server.residual.numpy()[span]
        self._lossless, self._carry = server.lossless, carry

    def write(self, piece: slice, writer: Writer) -> None:
        """All at once, where the downlink codec encodes a chunk by itself."""
        update = self._update(piece)
        decoded = update
        if self._lossless:
            writer.write(piece.start, update)
        else:
            decoded = np.empty_like(update)
            writer.write(piece.start, update, decoded)
            assert self._residual is not None
            np.subtract(update, decoded, out=self._residual[piece])
        self._parameters[piece] += decoded

    def collect(self, piece: slice) -> None:
        """First what is to be sent, into the residual."""
        assert self._residual is not None
        self._residual[piece] = self._update(piece)

    def send(self, piece: slice, reader: Reader) -> None:
        """Then what of it was sent, from there to the parameters."""
        assert self._residual is not None
        decoded = np.empty(piece.stop - piece.start, np.float32)
        reader.read(piece.start, decoded)
        self._residual[piece] -= decoded
        self._parameters[piece] += decoded

    def _update(self, piece: slice) -> Array:
        """What the outer optimizer and the residual want the parameters to move by. Nothing has changed before."""
        self._keep(self._start + piece.start, self._start + piece.stop)
        update = np.empty(piece.stop - piece.start, np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # of updates that a robust rule leaves out
            self._gradient.into(self._start + piece.start, update)
        self._outer.step(update, self._start + piece.start, self._rate)
        np.negative(update, out=update)
        if self._residual is not None and self._carry:
            update += self._residual[piece]
        return update


def _unbounded(bounds: Mapping[str, float]) -> str:
    """The name of one that is no float32 any more."""
    return next((name for name, bound in bounds.items() if not bound < _LIMIT), "")
