"""Flat parameter vectors as bytes."""

from __future__ import annotations

import hashlib

from torch import Tensor


def raw(vector: Tensor) -> memoryview:
    """The bytes of a CPU float32 vector, little-endian, without a copy."""
    return memoryview(vector.detach().contiguous().numpy()).cast("B")


def digest(vector: Tensor) -> str:
    """SHA-256 of the vector's bytes: names a version of the parameters, and the snapshot of it."""
    return hashlib.sha256(raw(vector)).hexdigest()
