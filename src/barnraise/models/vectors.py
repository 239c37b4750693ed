"""Flat parameter vectors as bytes."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


def raw(vector: Tensor) -> memoryview:
    """The bytes of a CPU float32 vector, little-endian, without a copy."""
    array: NDArray[np.float32] = vector.detach().contiguous().numpy()
    return array.data.cast("B")


def digest(vector: Tensor) -> str:
    """SHA-256 of the vector's bytes: names a version of the parameters, and the snapshot of it."""
    return hashlib.sha256(raw(vector)).hexdigest()
