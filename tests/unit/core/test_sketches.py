"""Sketches of vectors against the vectors themselves."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnraise.core import sketches
from barnraise.core.sketches import FARTHEST, compare, is_finite, sketch
from barnraise.core.types import SKETCH_BYTES, SKETCH_SIZE

Array = np.ndarray[Any, np.dtype[np.float32]]


def of(vector: Array, seed: int = 1) -> bytes:
    return sketch(lambda start, out: np.copyto(out, vector[start : start + len(out)]), len(vector), seed)


def drawn(seed: int, size: int = 20_000) -> Array:
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


@pytest.mark.parametrize("share", [-1.0, -0.3, 0.0, 0.5, 0.95, 1.0])
def test_cosine_and_distance_are_those_of_the_vectors(share: float) -> None:
    """The mean over 20 seeds is within three standard deviations of the estimate."""
    a = drawn(1)
    b = share * a + math.sqrt(1 - share**2) * drawn(2)
    cosine = float(a @ b) / float(np.linalg.norm(a) * np.linalg.norm(b))
    distance = float(np.linalg.norm(a - b) / np.linalg.norm(a))
    found = [compare(of(a, seed), of(b, seed)) for seed in range(1, 21)]
    few = 3 / math.sqrt(SKETCH_SIZE * len(found))
    assert abs(sum(one for one, _ in found) / len(found) - cosine) <= few
    assert abs(sum(one for _, one in found) / len(found) - distance) <= few * max(1.0, distance)


@given(st.integers(1, 3 * 4096), st.integers(1, 2**48), st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_a_sketch_is_linear_and_keeps_the_length(size: int, seed: int, other: int) -> None:
    a, b = drawn(other, size), drawn(other + 100, size)
    one, two, both = (np.frombuffer(of(vector, seed), "<f4") for vector in (a, b, a + b))
    assert np.allclose(one + two, both, atol=1e-3)
    assert compare(of(a, seed), of(a.copy(), seed)) == (pytest.approx(1.0), 0.0)
    if size == 1:
        assert float(np.linalg.norm(one)) == pytest.approx(float(np.linalg.norm(a)), rel=1e-5)


def test_each_element_goes_into_one_sum_with_a_sign_whatever_the_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = of(np.arange(10_000, dtype=np.float32))
    monkeypatch.setattr(sketches, "SPAN", 64)
    assert of(np.arange(10_000, dtype=np.float32)) == whole
    alone = np.zeros(10_000, np.float32)
    alone[777] = 2.5
    assert sorted(np.abs(np.frombuffer(of(alone), "<f4")))[-2:] == [0.0, 2.5]


def test_a_sketch_is_the_same_everywhere_and_another_with_another_seed() -> None:
    """The bits that a seed gives are fixed, on this machine and on others."""
    ones = np.ones(5000, np.float32)
    assert hashlib.sha256(of(ones, 5)).hexdigest()[:16] == "826ce8fed6a533ab"
    assert of(ones, 5) != of(ones, 6)
    assert len(of(ones)) == SKETCH_BYTES


def test_non_finite_sketches_are_detected_and_zero_vectors_are_alike() -> None:
    zero, some = of(np.zeros(9, np.float32)), of(np.ones(9, np.float32))
    bad = of(np.array([1.0, math.nan, 2.0], np.float32))
    assert is_finite(some)
    assert not is_finite(bad)
    assert (compare(zero, zero), compare(some, zero), compare(zero, some)) == ((1.0, 0.0), (0.0, 1.0), (0.0, FARTHEST))
    huge = np.full(SKETCH_SIZE, 3e38, "<f4").tobytes()
    assert compare(some, huge)[1] == FARTHEST
    assert all(map(math.isfinite, compare(huge, some)))
