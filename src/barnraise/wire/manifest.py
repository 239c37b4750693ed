"""What a worker must know before its first task, as one JSON blob: the model's config and the dataset's description."""

from __future__ import annotations

from typing import Any

import msgspec

from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import WireError
from barnraise.core.types import Blob, Count

MANIFEST_LIMIT = 1 << 20
"""Largest manifest in bytes: decoding one takes less than a second, in which a process hears no signal."""


class Manifest(msgspec.Struct, frozen=True):
    """`model` is a resolved config; `dataset` is the blob of the dataset's meta.json, which names the shards."""

    model: dict[str, Any]
    dataset: Blob
    num_parameters: Count

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, content: bytes) -> Manifest:
        """WireError when `content` is not a manifest."""
        try:
            return msgspec.json.decode(content, type=cls)
        except MALFORMED as error:
            raise WireError(f"the controller's manifest cannot be read: {error}") from None
