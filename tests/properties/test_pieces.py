"""Payloads piece by piece: what is read, added or written so is what the whole would be, bit for bit."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from .test_compression_properties import codecs, vectors

CUTS = st.lists(st.integers(0, 20_000), max_size=4)
SIZES = st.sampled_from([1, 63, 300, 4096, 9000, 20_000])


def sample(size: int, seed: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(size, np.float32) * np.float32(10.0 ** int(rng.integers(-4, 4)))


def pieces(size: int, cuts: list[int], multiple: int = 1) -> list[tuple[int, int]]:
    ends = sorted({min(size, cut // multiple * multiple) for cut in cuts} | {0, size})
    return list(pairwise(ends))


@given(codecs, SIZES, CUTS, st.integers(0, 9), st.booleans(), st.floats(-2, 2, width=32))
def test_any_pieces_decode_as_the_whole(
    codec: Any, size: int, cuts: list[int], seed: int, aligned: bool, weight: float
) -> None:
    encoded = codec.encode(torch.from_numpy(sample(size, seed)))
    reader, base = codec.open(encoded.to_bytes(), size), sample(size, 99)
    whole, added = codec.decode(encoded).numpy(), codec.decode_add(encoded, torch.from_numpy(base.copy()), weight)
    read, sums = np.full(size, 7, np.float32), base.copy()
    for start, stop in pieces(size, cuts, codec.multiple if aligned else 1):
        reader.read(start, read[start:stop])
        reader.add(start, sums[start:stop], weight)
    assert read.tobytes() == whole.tobytes()
    assert sums.tobytes() == added.numpy().tobytes()


@given(codecs, SIZES, CUTS, st.integers(0, 9))
def test_any_pieces_are_written_as_the_whole(codec: Any, size: int, cuts: list[int], seed: int) -> None:
    if not codec.piecewise:
        return
    values = sample(size, seed)
    values[::3] *= np.float32(-0.0)
    writer, decoded = codec.writer(size), np.empty(size, np.float32)
    for start, stop in reversed(pieces(size, cuts, codec.multiple)):
        writer.write(start, values[start:stop], decoded[start:stop])
    encoded = codec.encode(torch.from_numpy(values))
    assert writer.finish().to_bytes() == encoded.to_bytes()
    assert decoded.tobytes() == codec.decode(encoded).numpy().tobytes()


@given(codecs, vectors)
def test_norm_and_largest_are_found_in_what_was_sent(codec: Any, x: torch.Tensor) -> None:
    encoded = codec.encode(x)
    reader, decoded = codec.open(encoded, x.numel()), codec.decode(encoded)
    norm = float(torch.linalg.vector_norm(decoded, dtype=torch.float64))
    assert reader.norm() == pytest.approx(norm, rel=1e-9)
    most = float(decoded.abs().max()) if x.numel() else 0.0
    assert most <= reader.largest * (1 + 1e-6)
    given = float(x.abs().max()) if x.numel() else 0.0
    if codec.name not in ("dct_topk", "low_rank"):  # their bounds are of sums, and they write no versions
        assert reader.largest <= max(1.01 * given, 2.0**-120)
