"""Expansion of seeds: the standard's stream, whatever the span, and its own inverse."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from barnraise.privacy.masking.expand import CHUNK_BYTES, Stream, add_streams, fresh_seed

SEED = bytes(range(32))


def reference(seed: bytes, dtype: str, count: int) -> np.ndarray:
    """Counter mode from the block cipher alone (SP 800-38A, section 6.5)."""
    block = Cipher(algorithms.AES256(seed), modes.ECB()).encryptor()
    size = count * np.dtype(dtype).itemsize
    counters = b"".join(number.to_bytes(16, "big") for number in range(-(-size // 16)))
    return np.frombuffer(block.update(counters)[:size], dtype)


@pytest.mark.parametrize("dtype", ["<u2", "<u4"])
def test_a_stream_is_counter_mode_from_zero(dtype: str) -> None:
    stream = Stream(SEED, np.dtype(dtype))
    assert [*stream.words(16), *stream.words(8)] == reference(SEED, dtype, 24).tolist()


@pytest.mark.parametrize(("dtype", "bits"), [("<u2", 15), ("<u2", 16), ("<u4", 20), ("<u4", 32)])
def test_streams_of_many_chunks_add_up_and_subtract_to_nothing(dtype: str, bits: int) -> None:
    count, seeds, mask = CHUNK_BYTES + 77, [fresh_seed() for _ in range(3)], 2**bits - 1
    total = np.zeros(count, dtype)
    add_streams(total, seeds, mask)
    expected = sum(reference(seed, dtype, count).astype(np.uint64) for seed in seeds) & np.uint64(mask)
    assert np.array_equal(total, expected)
    add_streams(total, seeds[::-1], mask, subtract=True)
    assert not total.any()


def test_fresh_seeds_differ() -> None:
    assert len({fresh_seed() for _ in range(100)}) == 100
