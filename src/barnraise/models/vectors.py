"""Flat parameter vectors as bytes, and the digests that name them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from barnraise.core.digests import LEAF_BYTES, num_leaves, root
from barnraise.core.threads import Crew, spans
from barnraise.core.types import ParameterRange


def raw(vector: Tensor) -> memoryview:
    """Return the bytes of a CPU float32 vector, little-endian, without a copy."""
    array: NDArray[np.float32] = vector.detach().contiguous().numpy()
    return array.data.cast("B")


class Leaves:
    """The digest of a vector that changes in parts: only changed leaves are hashed again (see `core.digests`)."""

    def __init__(self, crew: Crew | None = None) -> None:
        self._crew = crew or Crew()
        self._hashes: list[bytes] = []

    def digest(self, vector: Tensor, changed: Iterable[ParameterRange] | None = None) -> str:
        """Return the digest of `vector` (float32 [d]), of which only the ranges `changed` differ from the last call.

        None: all of them may differ. It names a version of the parameters, and its snapshot.
        """
        data = raw(vector)
        count = num_leaves(data.nbytes)
        if changed is None or len(self._hashes) != count:
            self._hashes, changed = [b""] * count, [ParameterRange(0, len(vector))]
        leaves = sorted({leaf for one in changed for leaf in leaves_of(one)})
        found = self._crew.each(
            lambda leaf: hashlib.sha256(data[leaf * LEAF_BYTES : (leaf + 1) * LEAF_BYTES]).digest(), leaves
        )
        for leaf, hashed in zip(leaves, found, strict=True):
            self._hashes[leaf] = hashed
        return root(self.listed, data.nbytes)

    @property
    def listed(self) -> bytes:
        """Return the concatenated digests of all leaves at the last call, of which the digest is computed."""
        return b"".join(self._hashes)


def leaves_of(parameters: ParameterRange) -> range:
    """Return the numbers of the leaves that hold these elements of a float32 vector.

    >>> leaves_of(ParameterRange(262_143, 262_145))
    range(0, 2)
    """
    return range(4 * parameters.start // LEAF_BYTES, -(-4 * parameters.stop // LEAF_BYTES))


def digest(vector: Tensor, crew: Crew | None = None) -> str:
    """Return the digest of a vector as a whole."""
    return Leaves(crew).digest(vector)


def bears(vector: Tensor, recorded: str) -> bool:
    """Return whether `recorded` is the digest of `vector`.

    Ledgers from before 1 MiB leaves hold the plain SHA-256 of its bytes, and are still replayed.
    """
    return recorded == digest(vector) or recorded == hashlib.sha256(raw(vector)).hexdigest()


def largest(vector: Tensor, crew: Crew) -> float:
    """Return max |x| of float32 [d]; NaN where one is."""
    array: NDArray[np.float32] = vector.numpy()
    found = crew.each(lambda span: np.maximum(array[span].max(), -array[span].min()), spans(array.size))
    return float(np.max(found, initial=0.0))
