"""From the end of a task to the bytes that are sent: delta, clip, error feedback and compression, in this order."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from barnraise.compression.feedback import ErrorFeedback
from barnraise.core.types import Blob


@dataclass(frozen=True)
class Payload:
    """An encoded update and its name. `encoded` is kept for the case that the controller refuses it."""

    blob: Blob
    data: bytes
    encoded: Any


class UpdatePath:
    """One worker's way from parameters to payloads; holds the error-feedback residual."""

    def __init__(self, codec: Any, *, error_feedback: bool, decay: float, update_clip: float | None) -> None:
        self.codec, self.update_clip = codec, update_clip
        self.feedback = ErrorFeedback(codec, decay=decay) if error_feedback and not codec.lossless else None

    def send(self, start: Tensor, end: Tensor) -> Payload:
        """The pseudo-gradient start - end (float32 [d]) as a payload; `start` is overwritten."""
        delta = clip(start.sub_(end), self.update_clip)
        encoded = self.feedback.compress(delta) if self.feedback else self.codec.encode(delta)
        data = bytes(encoded.to_bytes())
        return Payload(Blob(hashlib.sha256(data).hexdigest(), len(data)), data, encoded)

    def settle(self, payload: Payload, accepted: bool) -> None:
        """A refused update goes back to the residual."""
        if self.feedback and not accepted:
            self.feedback.give_back(payload.encoded)


def clip(delta: Tensor, limit: float | None) -> Tensor:
    """Scale `delta` in place to an L2 norm of at most `limit`."""
    if limit is None:
        return delta
    norm = float(torch.linalg.vector_norm(delta, dtype=torch.float64))
    return delta.mul_(limit / norm) if norm > limit else delta
