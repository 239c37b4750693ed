"""The path of an update from the end of a task to the sent bytes: a list of stages."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from barnraise.compression.base import Array, Codec, Encoded, Reader
from barnraise.compression.catalog import CATALOG
from barnraise.compression.feedback import ErrorFeedback
from barnraise.core import ranges
from barnraise.core.threads import Crew
from barnraise.core.types import Blob, Ranges
from barnraise.worker.encrypting import Encrypt
from barnraise.worker.masking import Bound, Mask
from barnraise.worker.stages import Addition, Clip, Difference, Draft, Encode, Feedback, WorkerStage

Opened: TypeAlias = tuple[Ranges, Reader]


@dataclass(frozen=True)
class SentUpdate:
    """An encoded update and its name, kept until the controller answers."""

    blob: Blob
    encoded: Encoded
    codec: Codec
    covered: Ranges | None  # the parameters that it updates; None: all
    masked: bytes | None = None  # the sent bytes, where these are not `encoded`

    @property
    def data(self) -> memoryview:
        return self.encoded.payload if self.masked is None else memoryview(self.masked)

    def decoded(self) -> Array:
        """Return the decoded update, float32."""
        found = np.empty(self.encoded.size, np.float32)
        self.codec.open(self.encoded, found.size).read(0, found)
        return found

    def opened(self, size: int) -> Opened:
        """Return the ranges of `size` parameters that it updates, and the reader of that update."""
        covered = self.covered or (0, size)
        return covered, self.codec.open(self.encoded, ranges.size(covered))


class UpdatePath:
    """One worker's path from parameters to payloads, stage by stage; holds the error-feedback residual.

    With `fragments` a contribution is of ranges of the parameters, and the residual holds the others' progress. `keep`
    is the share of the residual that the worker trains on with, so that its own progress does not wait for the wire.
    `last` is a denser codec for the contribution after which it leaves: the part that one leaves out is lost. The
    `crew` shares elementwise work. A `mask`, or a cipher, hides what is sent. `free` is given the vector that a
    sent update no longer needs.
    """

    difference, clip, feedback_kind = Difference, Clip, ErrorFeedback

    def __init__(
        self,
        codec: Codec,
        *,
        error_feedback: bool,
        decay: float,
        update_clip: float | None,
        keep: float = 0.0,
        fragments: bool = False,
        last: Codec | None = None,
        crew: Crew | None = None,
        mask: Mask | Encrypt | None = None,
        free: Callable[[Tensor], None] = lambda vector: None,
    ) -> None:
        self.codec, self.keep, self.last, self.free = codec, keep, last, free
        crew = crew or Crew()
        leaves_out = fragments or not CATALOG.entry(codec.name).declares.lossless
        self.feedback = self.feedback_kind(codec, decay, crew) if error_feedback and leaves_out else None
        self._first = self.difference(crew, self.feedback)
        self.mask = mask
        self.stages: list[WorkerStage] = [
            self._first,
            *([Feedback(self.feedback)] if self.feedback else []),
            *([Bound(update_clip)] if mask and update_clip is not None else []),
            mask or Encode(),
            *([self.clip(update_clip, crew)] if update_clip is not None and not mask else []),
        ]

    def insert(self, stage: WorkerStage) -> None:
        """Insert a stage that sees the difference alone: what error feedback kept is added behind it."""
        self._first.feedback = None
        self.stages[1:1] = [stage, *([Addition(self.feedback)] if self.feedback else [])]

    @property
    def kept(self) -> tuple[Tensor | None, float]:
        """Return the residual, float32 [d], and the share of it that the worker keeps; None and 0 where it does not."""
        residual = self.feedback.residual if self.feedback and self.keep else None
        return residual, 0.0 if residual is None else self.keep

    def send(
        self,
        start: Tensor,
        end: Tensor,
        *,
        version: int = 0,
        covered: Ranges | None = None,
        scale: float = 1.0,
        leaving: bool = False,
    ) -> SentUpdate:
        """Encode the ranges `covered` (None: all) of the pseudo-gradient (start - end) * scale (float32 [d]).

        It is an update of `version`. `start` belongs to the path from here on. The rest outside `covered` goes to the
        residual; `leaving` flushes that inside. Raises PayloadError when it is not finite; the residual is as before.
        """
        codec = self.last if leaving and self.last and self.feedback else self.codec
        update = Draft(start, end, scale, version, covered, codec)
        try:
            for stage in self.stages:
                stage.forward(update)
            for stage in reversed(self.stages):
                stage.sent(update)
        finally:
            self.free(update.vector)
        assert update.encoded is not None
        return _named(update.encoded, codec, covered, update.masked)

    def flush(self, size: int) -> SentUpdate:
        """Encode the residual (float32 [size]; zeros when there is none) as a payload of the last codec."""
        codec = self.last or self.codec
        encoded = self.feedback.flush(codec) if self.feedback else None
        return _named(encoded or codec.encode(torch.zeros(size, dtype=torch.float32)), codec)

    def settle(self, payload: SentUpdate, accepted: bool) -> None:
        """Tell the stages of a refused update, the last one first: error feedback takes it back."""
        if not accepted:
            for stage in reversed(self.stages):
                stage.refused(payload.encoded, payload.codec, payload.covered)


def _named(encoded: Encoded, codec: Codec, covered: Ranges | None = None, masked: bytes | None = None) -> SentUpdate:
    data = encoded.payload if masked is None else masked
    return SentUpdate(Blob(hashlib.sha256(data).hexdigest(), len(data)), encoded, codec, covered, masked)
