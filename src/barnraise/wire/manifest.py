"""The manifest, one JSON blob that a worker needs before its first task: model config and dataset description."""

from __future__ import annotations

from typing import Any

import msgspec

from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import WireError
from barnraise.core.types import Blob, Count

MANIFEST_LIMIT = 1 << 20
"""Largest manifest in bytes: decoding it takes less than a second, in which a process handles no signal."""


class Manifest(msgspec.Struct, frozen=True):
    """`model` is a resolved config; `dataset` is the blob of the dataset's meta.json, which names the shards."""

    model: dict[str, Any]
    dataset: Blob
    num_parameters: Count

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, content: bytes) -> Manifest:
        """Decode a manifest; WireError when `content` is none."""
        try:
            return msgspec.json.decode(content, type=cls)
        except MALFORMED as error:
            raise WireError(f"the controller's manifest cannot be read: {error}") from None
