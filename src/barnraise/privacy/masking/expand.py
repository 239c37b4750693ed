"""Pseudorandom words from 256-bit seeds: AES-256 in counter mode (NIST SP 800-38A), from a zero counter.

A seed has one stream and is used once, so a zero counter never repeats under a key. The words of a stream are its bytes
as little-endian integers of 16 or 32 bits; the low b bits of uniform words are uniform modulo 2**b. numpy's generators
are not used: their later words follow from earlier ones.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from barnraise.core.threads import spans

Array: TypeAlias = NDArray[Any]

SEED_BYTES = 32
CHUNK_BYTES = 1 << 18
"""Bytes of a stream that are made at once: they fit a processor's cache."""

_BLOCK = 16
_ZEROS = bytes(CHUNK_BYTES)


def fresh_seed() -> bytes:
    """Return a new seed from the system's random source."""
    return secrets.token_bytes(SEED_BYTES)


class Stream:
    """The words of one seed, in order; `dtype` is their type."""

    def __init__(self, seed: bytes, dtype: np.dtype[Any]) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        self._dtype = dtype
        self._encryptor = Cipher(algorithms.AES256(seed), modes.CTR(bytes(_BLOCK))).encryptor()

    def words(self, count: int) -> Array:
        """Return the next `count` words."""
        out = bytearray(count * self._dtype.itemsize + _BLOCK)
        self.fill(out, count)
        return np.frombuffer(out, self._dtype, count)

    def fill(self, buffer: bytearray, count: int) -> None:
        """Write the next `count` words, at most `CHUNK_BYTES`, to `buffer`, which has room for 16 bytes more."""
        self._encryptor.update_into(memoryview(_ZEROS)[: count * self._dtype.itemsize], buffer)


def add_streams(total: Array, seeds: Sequence[bytes], mask: int, *, subtract: bool = False) -> None:
    """Add (or subtract) the streams of all `seeds` to `total`, whose words are masked with `mask`, in place.

    It takes 256 KiB of memory and about a kilobyte for each seed.
    """
    dtype = total.dtype
    buffer = bytearray(CHUNK_BYTES + _BLOCK)
    chunk = np.frombuffer(buffer, dtype, CHUNK_BYTES // dtype.itemsize)
    streams = [Stream(seed, dtype) for seed in seeds]
    operate = np.subtract if subtract else np.add
    for span in spans(total.size, chunk.size):
        target = total[span]
        for stream in streams:
            stream.fill(buffer, target.size)
            operate(target, chunk[: target.size], out=target)
        target &= dtype.type(mask)
