"""The compiled loops do what numpy does, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from barnraise import compression
from barnraise.compression import fast, loops
from barnraise.compression.base import Array
from barnraise.compression.chunks import choose
from barnraise.core.errors import PayloadError
from barnraise.core.threads import Crew
from barnraise.worker.offsets import VersionOffset

SIZE = 100_003
finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
few = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-40, 1e30])  # many are equal
shapes = st.tuples(st.integers(1, 5), st.sampled_from([16, 64]))
rows = shapes.flatmap(lambda shape: hnp.arrays(np.float32, shape, elements=st.one_of(finite, few)))


def chosen(found: Array, kept: int, *, compiled: bool) -> tuple[bytes, bytes]:
    places, values = np.zeros((len(found), kept), np.uint16), np.zeros((len(found), kept), np.float32)
    choose(found, places, values, loops if compiled else None)
    return places.tobytes(), values.tobytes()


@given(rows, st.integers(1, 16))
def test_the_compiled_selection_chooses_as_numpy_does(found: Array, kept: int) -> None:
    assert chosen(found, kept, compiled=True) == chosen(found, kept, compiled=False)


@given(rows, st.sampled_from([np.nan, np.inf, -np.inf]), st.randoms())
def test_the_compiled_selection_refuses_what_is_not_finite(found: Array, wrong: float, random: st.Random) -> None:
    found[random.randrange(found.shape[0]), random.randrange(found.shape[1])] = wrong
    for compiled in (True, False):
        with pytest.raises(PayloadError, match="not finite"):
            chosen(found, 3, compiled=compiled)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sparse_loco", {}),
        ("sparse_loco", {"ratio": 0.25, "chunk": 64}),
        ("chunked_topk", {}),
        ("int4", {}),
        ("int4", {"block": 8}),
        ("int4", {"block": 9}),
    ],
)
def test_payloads_and_decoded_vectors_are_the_same_with_compiled_loops(
    name: str, options: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(5)
    vector = torch.randn(SIZE, generator=generator).mul_(torch.randn(SIZE, generator=generator).mul_(9).exp_())
    vector[:9000] = torch.randint(-3, 4, (9000,), generator=generator)
    found = []
    for worth in (0, SIZE + 1):
        monkeypatch.setattr(fast, "WORTH", worth)
        codec = compression.create(name, **options)
        encoded = codec.encode(vector)
        parts = np.full(SIZE, 7, np.float32)
        reader = codec.open(encoded, SIZE)
        for start in range(0, SIZE, 30_000):
            reader.add(start, parts[start : start + 30_000], 0.3)
        found.append((encoded.to_bytes(), codec.decode(encoded).numpy().tobytes(), parts.tobytes()))
    assert found[0] == found[1]


@pytest.mark.parametrize("keep", [0.0, 0.9])
def test_offsets_are_the_same_with_compiled_loops(keep: float, monkeypatch: pytest.MonkeyPatch) -> None:
    there, start, here, residual, update = torch.randn(5, SIZE, generator=torch.Generator().manual_seed(5)).unbind()
    codec, found = compression.create("sparse_loco"), []
    unmerged = [((10, 90_010), codec.open(codec.encode(update[:90_000]), 90_000))]
    for worth in (0, SIZE + 1):
        monkeypatch.setattr(fast, "WORTH", worth)
        offset = here.clone()
        way = VersionOffset(
            there=there,
            start=start,
            unmerged=unmerged,
            share=0.3,
            residual=residual if keep else None,
            keep=keep,
            rest=0.6,
        )
        way.overwrite(offset, Crew(2))
        found.append(offset)
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-6)  # torch contracts a product and a sum


def test_small_vectors_need_no_compiled_loops() -> None:
    assert fast.loops(fast.WORTH - 1) is None
    assert fast.loops(fast.WORTH) is loops
