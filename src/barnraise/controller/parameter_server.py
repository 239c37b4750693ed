"""The published parameters, and how a closed buffer becomes the next version of them. Tensors live here.

Version v+1 is version v plus a decoded delta, in float32, elementwise: every replica that applies the same delta
agrees bit for bit. What the downlink codec leaves out stays here as a residual, next to the outer optimizer's state;
both are in the checkpoint. The digest of a version is the SHA-256 of its little-endian float32 bytes, so that it names
the snapshot too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from barnraise.controller.actions import SlotShare
from barnraise.core.errors import PayloadError
from barnraise.core.types import Blob
from barnraise.models.vectors import digest

ReadPayload = Callable[[int], Any]
"""Assignment id -> the payload's bytes."""


@dataclass(frozen=True)
class Made:
    """A new version: its number, the digest of its parameters, and the delta that leads to it."""

    version: int
    digest: str
    delta: Blob
    delta_bytes: bytes


class ParameterServer:
    """Holds one float32 vector of d parameters and moves it from version to version.

    `rule`, `codec`, `downlink` and `outer` are policies of their families. Versions are immutable tensors: a snapshot
    that is being sent keeps its own alive. Not thread-safe: one thread makes versions and reads the state.
    """

    def __init__(self, parameters: Tensor, version: int, *, rule: Any, codec: Any, downlink: Any, outer: Any) -> None:
        self.parameters, self.version = parameters, version
        self.rule, self.codec, self.downlink, self.outer = rule, codec, downlink, outer
        self.residual: Tensor | None = None
        self.digest = digest(parameters)

    def inspect(self, payload: Any, start: int, stop: int) -> tuple[float, str]:
        """L2 norm of the payload's update of parameters [start, stop), and what is wrong with it (empty: nothing)."""
        try:
            update = self.codec.decode(payload, size=stop - start)
        except PayloadError as error:
            return 0.0, str(error)
        return float(torch.linalg.vector_norm(update, dtype=torch.float64)), ""

    def aggregate(self, version: int, slots: Sequence[SlotShare], read: ReadPayload) -> Made:
        """Make `version` from the slots, in their order; `read` gives a contribution's payload."""
        assert version == self.version + 1
        update = self.outer.step(self.parameters, self._pseudo_gradient(slots, read)).neg_()
        if self.residual is not None:
            update += self.residual
        encoded = bytes(self.downlink.encode(update).to_bytes())
        decoded = self.downlink.decode(encoded, size=update.numel())
        if self.downlink.lossless:
            self.residual = None
        else:
            self.residual = update.sub_(decoded)
        self.parameters, self.version = self.parameters + decoded, version
        self.digest = digest(self.parameters)
        return Made(version, self.digest, Blob(hashlib.sha256(encoded).hexdigest(), len(encoded)), encoded)

    def _pseudo_gradient(self, slots: Sequence[SlotShare], read: ReadPayload) -> Tensor:
        """The aggregation rule over the slots of each range of the parameters; zero where nobody contributed."""
        ranges = sorted({slot.parameters for slot in slots}, key=lambda r: (r.start, r.stop))
        gradient = torch.zeros_like(self.parameters) if ranges[0].stop - ranges[0].start < len(self.parameters) else None
        for span in ranges:
            members = [slot for slot in slots if slot.parameters == span]
            updates = torch.empty(len(members), span.stop - span.start)
            for row, slot in zip(updates, members, strict=True):
                self._slot(row, slot, read)
            weights = torch.tensor([sum(weight for _, weight in slot.contributions) for slot in members])
            combined = self.rule(updates, weights)
            if gradient is None:
                return combined
            gradient[span.start : span.stop] = combined
        assert gradient is not None
        return gradient

    def _slot(self, out: Tensor, slot: SlotShare, read: ReadPayload) -> None:
        """Write the weighted mean of one node's updates into `out`."""
        total = sum(weight for _, weight in slot.contributions)
        for index, (assignment, weight) in enumerate(slot.contributions):
            update = self.codec.decode(read(assignment), size=out.numel())
            if len(slot.contributions) == 1:
                out.copy_(update)
            elif index == 0:
                torch.mul(update, weight / total, out=out)
            else:
                out.add_(update, alpha=weight / total)

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint must hold besides the version number."""
        tensors = {f"outer.{name}": tensor for name, tensor in self.outer.state().items()}
        tensors["parameters"] = self.parameters
        if self.residual is not None:
            tensors["residual"] = self.residual.clone()
        return tensors

    def load(self, tensors: dict[str, Tensor], version: int) -> None:
        """Go back to a checkpoint's `state()` at `version`."""
        self.parameters, self.version = tensors["parameters"], version
        self.residual = tensors.get("residual")
        outer = {name.removeprefix("outer."): t for name, t in tensors.items() if name.startswith("outer.")}
        self.outer.load(outer)
        self.digest = digest(self.parameters)
