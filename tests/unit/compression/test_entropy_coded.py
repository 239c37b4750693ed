"""Entropy-coded quantisation: what it keeps in its bits, and streams that lie."""

from __future__ import annotations

import struct
import zlib
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from barnraise import compression
from barnraise.compression.feedback import ErrorFeedback
from barnraise.core.errors import PayloadError

SIZE = 7
PLANES = (bytes([1 + 2 * 3, 2 * 3]), b"\x40")  # + - 0 0 0 | 0 -, of which the second is beyond the first level
MAGNITUDES = (1.0, 2.5)


def vector(size: int, seed: int = 0) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def payload(
    planes: tuple[bytes, ...] = (*PLANES, b"\x00"),
    magnitudes: tuple[float, ...] = MAGNITUDES,
    num_levels: int | None = None,
    after: bytes = b"",
    end: bool = True,
) -> bytes:
    deflate = zlib.compressobj(wbits=-15)
    stream = b"".join(deflate.compress(plane) for plane in planes) + deflate.flush(
        zlib.Z_FINISH if end else zlib.Z_FULL_FLUSH
    )
    head = struct.pack("<4sIQiI", b"ecsq", 0, SIZE, 0, len(magnitudes) if num_levels is None else num_levels)
    body = head + struct.pack(f"<{len(magnitudes)}f", *magnitudes) + stream + after
    return body.ljust(compression.create("entropy_coded").max_bytes(SIZE), b"\0")


def test_layout() -> None:
    codec = compression.create("entropy_coded")
    assert codec.decode(payload(), SIZE).tolist() == [1.0, -2.5, 0, 0, 0, 0, -1.0]
    assert codec.decode(payload(planes=(bytes(2),), magnitudes=()), SIZE).tolist() == [0.0] * SIZE


@pytest.mark.parametrize(
    ("lie", "told"),
    [
        (payload(num_levels=32), "32 levels, but at most 31"),
        (payload(num_levels=1 << 31), "levels, but at most 31"),
        (payload(magnitudes=(2.5, 1.0)), "ascending"),
        (payload(magnitudes=(0.0, 1.0)), "above 0"),
        (payload(magnitudes=(-1.0, 1.0)), "above 0"),
        (payload(magnitudes=(1.0, float("nan"))), "finite"),
        (payload(magnitudes=(1.0, float("inf"))), "finite"),
        (payload(planes=(b"\xf3\x00",)), "243, but at most 242"),
        (payload(planes=(b"\x07",)), "a plane of 1 bytes, but it must have 2"),
        (payload(planes=PLANES[:1]), "a plane of 0 bytes, but it must have 1"),
        (payload(planes=(bytes([7, 6 + 9]), *PLANES[1:], b"\x00")), "not those of 2 levels"),  # an eighth element
        (payload(planes=(PLANES[0], b"\x44", b"\x00")), "not those of 2 levels"),  # a fourth that is not 0
        (payload(planes=(*PLANES, b"\x80")), "not those of 2 levels"),  # beyond the last level
        (payload(magnitudes=(1.0, 2.5, 3.0), planes=(*PLANES, b"\x00")), "not those of 3 levels"),
        (payload(planes=(*PLANES, b"\x00", b"\x00")), "more than its planes"),
        (payload(planes=(*PLANES, b"\x00", bytes(1000))), "more than its planes"),
        (payload(end=False), "more than its planes|invalid"),
        (payload(after=b"\x01"), "more than its planes"),
        (payload(magnitudes=(), num_levels=0), "not those of 0 levels|more than its planes"),
    ],
)
def test_streams_that_lie(lie: bytes, told: str) -> None:
    codec, out = compression.create("entropy_coded"), torch.ones(SIZE)
    with pytest.raises(PayloadError, match=told):
        codec.decode_add(lie, out)
    with pytest.raises(PayloadError, match=told):
        codec.open(lie, SIZE)
    assert out.tolist() == [1.0] * SIZE


@pytest.mark.parametrize(("bits", "power"), [(0.3, 1), (0.8, 1), (0.8, 3), (1.6, 1), (1.6, 3), (4.0, 1)])
def test_the_bits_are_used(bits: float, power: int) -> None:
    codec = compression.create("entropy_coded", bits=bits)
    for size in (3_000, 100_000):
        encoded = codec.encode(vector(size) ** power).to_bytes()
        assert len(encoded) <= bits * size / 8 + 100
        assert len(encoded.rstrip(b"\0")) >= 0.97 * len(encoded)


def test_more_bits_leave_less_out() -> None:
    x = vector(50_000)
    errors = [
        float((x - codec.decode(codec.encode(x))).norm() / x.norm())
        for codec in (compression.create("entropy_coded", bits=bits) for bits in (0.3, 0.5, 0.8, 1.2, 1.6, 2.4, 4.0))
    ]
    assert all(more < 0.9 * less for less, more in pairwise(errors))
    assert errors[2] < 0.7  # where 2**-bits = 0.57 is the limit for Gaussian data
    assert errors[-1] < 0.09  # and 0.06


@pytest.mark.parametrize(("bits", "ratio"), [(0.8, 1 / 9), (1.6, 1 / 4)])
def test_it_leaves_less_out_than_the_largest_elements_in_as_many_bytes(bits: float, ratio: float) -> None:
    ours = ErrorFeedback(compression.create("entropy_coded", bits=bits))
    theirs = ErrorFeedback(compression.create("sparse_loco", ratio=ratio))
    for round_ in range(8):
        sent = [feedback.compress(vector(100_000, round_)).num_bytes for feedback in (ours, theirs)]
    assert sent[0] < 1.05 * sent[1]
    assert ours.residual_norm**2 < 0.8 * theirs.residual_norm**2


@pytest.mark.parametrize(
    "x",
    [
        torch.zeros(1000),
        torch.full((1000,), 1e-38),
        torch.full((1000,), -3.0e38),
        torch.tensor([1e-45, 3.4e38, -1e-45, 0.0] * 50),
        torch.tensor([1e-29] * 10 + [1e20]),
        torch.zeros(200_000).index_fill_(0, torch.tensor([77]), 5.0),
        torch.zeros(200_000).index_fill_(0, torch.arange(0, 200_000, 1000), -5.0),
    ],
)
def test_vectors_of_one_kind_and_of_all_kinds(x: Tensor) -> None:
    codec = compression.create("entropy_coded")
    decoded = codec.decode(codec.encode(x))
    assert bool(((decoded == 0) | (decoded.sign() == x.sign())).all())
    assert float((decoded - x).abs().max()) <= 1e-6 * float(x.abs().max()) + 1e-30


SIGNS = torch.where(vector(5000) > 0, 1.0, -1.0)


@pytest.mark.parametrize("bits", [0.3, 0.8, 0.99])
@pytest.mark.parametrize("x", [SIGNS, torch.ones(5000), SIGNS * torch.where(vector(5000, 1) > 1.5, 5.0, 1.0)])
def test_elements_of_one_magnitude_are_sent_by_turns(bits: float, x: Tensor) -> None:
    """No step parts them, so all would be sent or, if they do not fit, none, however long they wait."""
    feedback = ErrorFeedback(compression.create("entropy_coded", bits=bits))
    sent = torch.zeros(len(x))
    for _ in range(40):
        feedback.codec.decode_add(feedback.compress(x.clone()), sent)
    assert float(sent.norm()) > 0.8 * 40 * float(x.norm())


def test_the_lowest_indices_among_equal_magnitudes_are_sent() -> None:
    codec = compression.create("entropy_coded", bits=0.5)
    sent = codec.decode(codec.encode(SIGNS)).nonzero().flatten()
    assert 1000 < len(sent) < 2500
    assert sent.tolist() == list(range(len(sent)))


def test_a_stream_of_references_is_refused_before_it_unfolds() -> None:
    """Deflate writes a thousand equal bytes in a few bits; our encoder does not."""
    size = 1_000_000
    planes = (bytes([121]) * (size // 5), *[b"\xff" * (size // 8)] * 31)
    deflate = zlib.compressobj(level=9, wbits=-15)
    stream = b"".join(deflate.compress(plane) for plane in planes) + deflate.flush()
    codec = compression.create("entropy_coded")
    head = struct.pack("<4sIQiI31f", b"ecsq", 0, size, 0, 31, *range(1, 32))
    lie = (head + stream).ljust(codec.max_bytes(size), b"\0")
    assert len(stream) < codec.max_bytes(size) // 20
    with pytest.raises(PayloadError, match="a plane of 125000 bytes, but so many do not fit into the payload"):
        codec.open(lie, size)
