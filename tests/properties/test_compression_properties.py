"""Properties of every codec: declared errors, hostile bytes, conservation under error feedback."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

from barnraise import compression
from barnraise.compression import bits, catalog
from barnraise.compression.chunks import Grid, Places, largest
from barnraise.compression.feedback import ErrorFeedback
from barnraise.compression.topk import largest_indices
from barnraise.core.errors import PayloadError

torch.set_num_threads(1)
finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
vectors = hnp.arrays(np.float32, st.integers(0, 300), elements=finite).map(torch.from_numpy)
whole = hnp.arrays(np.float32, 20, elements=st.integers(-1000, 1000)).map(torch.from_numpy)
CODECS = [
    ("none", {}),
    ("fp16", {}),
    ("bf16", {}),
    ("int8", {"block": 8}),
    ("int8", {"block": 64}),
    ("int8", {"block": 64, "rounding": "stochastic"}),
    ("int4", {"block": 8}),
    ("int4", {"block": 9, "rounding": "stochastic"}),
    ("topk", {"ratio": 0.05}),
    ("topk", {"ratio": 0.3, "half_values": True}),
    ("chunked_topk", {"ratio": 0.1, "chunk": 64}),
    ("sparse_loco", {}),
    ("sparse_loco", {"ratio": 0.1, "chunk": 64}),
    ("entropy_coded", {}),
    ("entropy_coded", {"bits": 3.0}),
    ("dct_topk", {}),
    ("low_rank", {"rank": 2, "side": 64}),
    ("random_blocks", {"ratio": 0.2, "block": 16}),
]
codecs = st.sampled_from(CODECS).map(lambda pair: compression.create(pair[0], **pair[1]))


def round_trip(codec: Any, x: Tensor) -> Tensor:
    decoded: Tensor = codec.decode(codec.encode(x).to_bytes(), x.numel())
    return decoded


def test_every_codec_is_drawn() -> None:
    assert {name for name, _ in CODECS} == set(compression.names()), "add the codec to CODECS"


@given(vectors)
def test_none_is_exact(x: Tensor) -> None:
    assert round_trip(compression.create("none"), x).numpy().tobytes() == x.numpy().tobytes()


@given(vectors)
def test_fp16_error(x: Tensor) -> None:
    error = (round_trip(compression.create("fp16"), x).double() - x.double()).abs()
    largest = float(x.abs().max()) if x.numel() else 0.0
    bound = (x.double().abs() * 2.0**-11).clamp(min=max(2.0**-39 * largest, 2.0**-125))
    bound += (x.double().abs() > 3.4e38) * x.double().abs() * 2.0**-11
    assert bool((error <= bound).all())


@given(vectors)
def test_bf16_error(x: Tensor) -> None:
    error = (round_trip(compression.create("bf16"), x).double() - x.double()).abs()
    assert bool((error <= (x.double().abs() * 2.0**-8).clamp(min=2.0**-126)).all())


@given(vectors, st.sampled_from([8, 64, 256]), st.sampled_from([("int8", 127), ("int4", 7)]), st.booleans())
def test_block_integer_error(x: Tensor, block: int, kind: tuple[str, int], stochastic: bool) -> None:
    name, levels = kind
    codec = compression.create(name, block=block, rounding="stochastic" if stochastic else "nearest")
    error = (round_trip(codec, x).double() - x.double()).abs()
    for values, errors in zip(x.double().split(block), error.split(block), strict=True):
        scale = float(values.abs().max()) / levels if values.numel() else 0.0
        assert bool((errors <= max(scale * (0.5 + 2**-15) * (1 + stochastic), levels * 2.0**-126)).all())


@given(vectors.filter(len), st.sampled_from([(0.05, 64), (0.3, 128), (1.0, 64)]))
def test_chunked_topk_is_topk_of_each_chunk(x: Tensor, cut: tuple[float, int]) -> None:
    ratio, chunk = cut
    decoded = round_trip(compression.create("chunked_topk", ratio=ratio, chunk=chunk), x)
    kept = max(1, round(ratio * chunk))
    for values, found in zip(x.split(chunk), decoded.split(chunk), strict=True):
        order = np.lexsort((np.arange(values.numel()), -values.abs().numpy()))[:kept]
        expected = torch.zeros_like(values)
        expected[order.copy()] = values[order.copy()]
        bound = (expected.double().abs() * 2.0**-11).clamp(min=max(2.0**-39 * float(x.abs().amax()), 2.0**-125))
        bound += (expected.double().abs() > 3.4e38) * expected.double().abs() * 2.0**-11
        assert bool(((found.double() - expected.double()).abs() <= bound).all())


@given(vectors, st.sampled_from([{}, {"ratio": 0.1, "chunk": 64}]))
def test_sparse_loco_is_nearly_a_projection(x: Tensor, options: dict[str, Any]) -> None:
    codec = compression.create("sparse_loco", **options)
    decoded, norm = round_trip(codec, x).double(), float(x.double().norm())
    assert float((x.double() - decoded).norm()) <= norm * (1 + 2**-10) + 1e-30
    size = x.numel()
    for start in range(0, size, codec.chunk):
        part, found = x[start : start + codec.chunk].double(), decoded[start : start + codec.chunk]
        kept = part.abs().sort(descending=True).values[: codec.kept]
        assert float((found**2).sum()) >= float(kept.sum()) ** 2 / codec.kept * (1 - 2**-9) - 1e-10 * norm**2


@given(vectors)
def test_low_rank_is_nearly_a_projection(x: Tensor) -> None:
    codec = compression.create("low_rank", rank=2, side=64)
    norm = float(x.double().norm())
    assert float((x.double() - round_trip(codec, x).double()).norm()) <= norm * 1.01 + 1e-30


@given(st.integers(0, 300), st.integers(0, 16), st.integers(0, 2**32 - 1))
def test_bit_planes_round_trip(count: int, width: int, seed: int) -> None:
    values = np.random.default_rng(seed).integers(0, 1 << width, count)
    packed = bits.pack(values, width)
    assert packed.size == catalog.plane_bytes(count, width)
    assert np.array_equal(bits.unpack(packed, count, width), values)


@settings(max_examples=30)
@given(
    st.integers(1, 20_000), st.sampled_from([64, 256, 4096]), st.floats(0.001, 1.0), st.integers(0, 99), st.booleans()
)
def test_places_round_trip(size: int, chunk: int, ratio: float, seed: int, heavy_ties: bool) -> None:
    x = np.random.default_rng(seed).standard_normal(size, np.float32)
    if heavy_ties:
        x = np.rint(x)
    grid = Grid(size, chunk, catalog.kept(ratio, chunk))
    places = np.concatenate([largest(rows, grid.kept) for _, rows in grid.spans(x)])
    body = np.empty(catalog.places_bytes(grid.rows, chunk, grid.kept), np.uint8)
    Places(grid).pack(places, body)
    assert np.array_equal(Places(grid).unpack(body).reshape(places.shape) % chunk, places)


@given(vectors.filter(lambda x: x.numel() > 0), st.floats(0.01, 1.0))
def test_topk_is_the_reference(x: Tensor, ratio: float) -> None:
    k = max(1, round(ratio * x.numel()))
    order = np.lexsort((np.arange(x.numel()), -x.abs().numpy()))
    assert largest_indices(x.numpy(), k).tolist() == sorted(order[:k].tolist())
    decoded = round_trip(compression.create("topk", ratio=ratio), x)
    kept = torch.from_numpy(np.sort(order[:k]))
    assert torch.equal(decoded[kept], x[kept])
    assert torch.count_nonzero(decoded) <= k


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.integers(100_000, 400_000), st.floats(0.0001, 0.5), st.booleans())
def test_topk_of_long_vectors(seed: int, size: int, ratio: float, heavy_ties: bool) -> None:
    x = np.random.default_rng(seed).standard_normal(size, np.float32)
    if heavy_ties:
        x = np.rint(x)
    k = max(1, round(ratio * size))
    assert np.array_equal(largest_indices(x, k), np.sort(np.argsort(-np.abs(x), kind="stable")[:k]))


@given(codecs, vectors, st.floats(-4, 4, width=32))
def test_decode_add_is_decode_times_weight(codec: Any, x: Tensor, weight: float) -> None:
    x = x.clamp(-1e30, 1e30)
    encoded, start = codec.encode(x), torch.ones(x.numel())
    expected = codec.decode(encoded) * np.float32(weight) + 1
    assert torch.equal(codec.decode_add(encoded, start, weight=weight), expected)


@given(codecs, vectors)
def test_encoding_is_idempotent(codec: Any, x: Tensor) -> None:
    if codec.name in ("int8", "int4"):  # its scale is rounded, so a second pass may move a value by an ulp
        return
    if codec.name in ("dct_topk", "low_rank"):  # rounds in the middle of its arithmetic
        return
    if codec.name == "entropy_coded":  # where fewer levels are left, bits suffice for a smaller step
        return
    once = round_trip(codec, x)
    if codec.name == "sparse_loco" and (torch.count_nonzero(once) < Grid(x.numel(), codec.chunk, codec.kept).count):
        return  # kept zeros pull the smaller of a chunk's two means down, once more in each pass
    assert torch.equal(round_trip(codec, once), once)


def test_zeros_that_are_kept_pull_the_smaller_mean_down() -> None:
    """Where fewer values than a chunk keeps are not zero, as in a vector of two: 62 zeros and a 1 have one mean."""
    found = round_trip(compression.create("sparse_loco"), torch.tensor([1.0, 3.0]))
    assert found.tolist() == pytest.approx([1 / 63, 3.0], rel=1e-3)


@given(codecs, st.binary(max_size=600), st.integers(0, 300))
def test_any_bytes_are_refused_or_finite(codec: Any, payload: bytes, size: int) -> None:
    try:
        decoded = codec.decode(payload, size)
    except PayloadError:
        return
    assert decoded.shape == (size,)
    assert bool(decoded.isfinite().all())


@given(codecs, vectors, st.data())
def test_changed_bytes_are_refused_or_finite(codec: Any, x: Tensor, data: st.DataObject) -> None:
    payload = bytearray(codec.encode(x).payload)
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = codec.decode(payload, x.numel())
    except PayloadError:
        with pytest.raises(PayloadError):
            codec.open(payload, x.numel())
        return
    codec.open(payload, x.numel())
    assert bool(decoded.isfinite().all())


@given(st.lists(whole, min_size=1, max_size=8), st.lists(st.booleans(), min_size=8, max_size=8))
def test_feedback_loses_nothing(updates: list[Tensor], refused: list[bool]) -> None:
    feedback, arrived = ErrorFeedback(compression.create("topk", ratio=0.1)), torch.zeros(20)
    for update, refuse in zip(updates, refused, strict=False):
        encoded = feedback.compress(update.clone())
        if refuse:
            feedback.give_back(encoded)
        else:
            feedback.codec.decode_add(encoded, arrived)
    assert feedback.residual is not None
    assert torch.equal(arrived + feedback.residual, torch.stack(updates).sum(0))  # whole numbers: exact
    assert feedback.residual_norm == pytest.approx(float(feedback.residual.norm()))
