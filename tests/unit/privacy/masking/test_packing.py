"""Packed words take b bits each and give the same words back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnraise.core.errors import PayloadError
from barnraise.privacy.masking.packing import pack, packed_bytes, unpack


@given(bits=st.integers(2, 32), count=st.integers(1, 300), seed=st.integers(0, 2**32))
def test_packed_words_come_back(bits: int, count: int, seed: int) -> None:
    dtype = np.dtype("<u2" if bits <= 16 else "<u4")
    words = np.random.default_rng(seed).integers(0, 2**bits, count).astype(dtype)
    packed = pack(words, bits)
    assert len(packed) == packed_bytes(count, bits)
    assert len(packed) <= count * bits / 8 + bits % 8
    assert np.array_equal(unpack(packed, count, bits, dtype), words)


def test_another_length_is_refused() -> None:
    packed = pack(np.arange(10, dtype="<u2"), 15)
    for bad in (packed[:-1], packed + b"\0", b""):
        with pytest.raises(PayloadError, match="10 of 15 bits take"):
            unpack(bad, 10, 15, np.dtype("<u2"))


def test_bits_of_no_word_are_refused() -> None:
    packed = bytearray(pack(np.arange(10, dtype="<u2"), 15))
    packed[-1] |= 0x80
    with pytest.raises(PayloadError, match="belong to none"):
        unpack(bytes(packed), 10, 15, np.dtype("<u2"))
