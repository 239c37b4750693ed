"""Digests of large byte strings of which parts change: SHA-256 over the SHA-256 of fixed leaves.

    digest = SHA-256(SHA-256(leaf 0), SHA-256(leaf 1) ..., number of bytes as 8 bytes, little-endian)

A leaf has 1 MiB, the last one less. Leaves are hashed by several threads, and only when they have changed. Versions of
the parameters and their snapshots have this digest; all other bytes have their plain SHA-256.
"""

from __future__ import annotations

import hashlib

LEAF_BYTES = 1 << 20

DIGEST_BYTES = 32
"""Size of one leaf's digest."""


def num_leaves(num_bytes: int) -> int:
    """Return the number of leaves of `num_bytes` bytes."""
    return -(-num_bytes // LEAF_BYTES)


def root(leaves: bytes | bytearray, num_bytes: int) -> str:
    """Return the digest of `num_bytes` bytes from `leaves`, the concatenated digests of their leaves."""
    return hashlib.sha256(leaves + num_bytes.to_bytes(8, "little")).hexdigest()


class TreeHash:
    """Incremental tree hash with the interface of hashlib's hashes.

    >>> tree = TreeHash(b"ab")
    >>> tree.update(b"c")
    >>> tree.hexdigest() == root(hashlib.sha256(b"abc").digest(), 3)
    True
    """

    def __init__(self, data: bytes | bytearray | memoryview = b"") -> None:
        self._leaves = bytearray()
        self._leaf = hashlib.sha256()
        self._num_bytes = 0
        self.update(data)

    def update(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data).cast("B")
        while view:
            room = LEAF_BYTES - self._num_bytes % LEAF_BYTES
            self._leaf.update(view[:room])
            self._num_bytes += len(view[:room])
            if self._num_bytes % LEAF_BYTES == 0:
                self._leaves += self._leaf.digest()
                self._leaf = hashlib.sha256()
            view = view[room:]

    def hexdigest(self) -> str:
        rest = self._leaf.digest() if self._num_bytes % LEAF_BYTES else b""
        return root(self._leaves + rest, self._num_bytes)
