"""The ring: sums are exact, rounding is right in the mean, and terms that could wrap are refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnraise.core.errors import InputError, PayloadError
from barnraise.privacy.masking.ring import Ring

SEED = bytes(range(32))


@given(
    value_bits=st.integers(2, 16),
    members=st.integers(1, 70),
    seed=st.integers(0, 2**32),
    extreme=st.booleans(),
)
def test_a_sum_of_all_members_never_wraps(value_bits: int, members: int, seed: int, extreme: bool) -> None:
    ring = Ring(value_bits, members, 2.0)
    generator = np.random.default_rng(seed)
    total, exact = np.zeros(5, ring.dtype), np.zeros(5, np.int64)
    for _ in range(members):
        values = np.full(4, 9.0 if extreme else generator.uniform(-3, 3), np.float32)
        weight = ring.most_weight if extreme else int(generator.integers(1, ring.most_weight + 1))
        words = ring.quantise(values, weight)
        exact[0] += words[0]
        exact[1:] += ring.signed(words[1:])
        ring.add(total, words)
    assert total[0] == exact[0]
    assert ring.signed(total[1:]).tolist() == exact[1:].tolist()
    assert ring.refusal(total, members) == ""
    mean, _ = ring.decode(total, members)
    assert np.abs(mean).max() <= 2.0 * ring.most_weight * (1 + 1e-6)


def test_a_mean_is_weighted_and_close() -> None:
    ring = Ring(12, 4, 1.0)
    generator = np.random.default_rng(0)
    updates = [generator.uniform(-1, 1, 1000).astype(np.float32) for _ in range(4)]
    weights = [ring.weight(share) for share in (1.0, 0.5, 0.25, 0.1)]
    total = np.zeros(1001, ring.dtype)
    for values, weight in zip(updates, weights, strict=True):
        ring.add(total, ring.quantise(values, weight))
    mean, shares = ring.decode(total, 4)
    expected = sum(w * x for w, x in zip(weights, updates, strict=True)) / sum(weights)
    assert np.abs(mean - expected).max() < 4 / ring.limit / shares
    assert shares == pytest.approx(1.85, abs=1e-3)


def test_rounding_is_right_in_the_mean() -> None:
    ring = Ring(6, 2, 1.0)
    step = 1.0 / ring.limit
    values = np.full(200_000, 0.3 * step, np.float32)
    drawn = ring.signed(ring.quantise(values, ring.most_weight)[1:])
    assert set(np.unique(drawn)) == {0, 1}
    assert drawn.mean() == pytest.approx(0.3, abs=6 * (0.21 / values.size) ** 0.5)
    negative = ring.signed(ring.quantise(-values, ring.most_weight)[1:])
    assert negative.mean() == pytest.approx(-0.3, abs=6 * (0.21 / values.size) ** 0.5)


def test_values_beyond_the_clip_saturate() -> None:
    ring = Ring(16, 1, 0.5)
    words = ring.quantise(np.array([0.5, 1e30, -1e30, -0.5], np.float32), ring.most_weight)
    assert ring.signed(words[1:]).tolist() == [ring.limit, ring.limit, -ring.limit, -ring.limit]


@pytest.mark.parametrize("weight", [1, 7, 300, 1022, 1023])
def test_a_light_member_s_values_saturate_within_its_weight(weight: int) -> None:
    ring = Ring(10, 2, 0.5)
    words = ring.quantise(np.full(2000, 1e30, np.float32), weight)
    most = ring.limit * weight / ring.most_weight
    assert set(ring.signed(words[1:]).tolist()) <= {math.floor(most), math.ceil(most)}
    ring.add(words, ring.quantise(np.full(2000, 9.0, np.float32), weight))
    assert ring.refusal(words, 2) == ""


def test_a_seed_fixes_the_rounding() -> None:
    ring, values = Ring(8, 2, 1.0), np.linspace(-1, 1, 77, dtype=np.float32)
    again = [ring.quantise(values, 7, SEED).tolist() for _ in range(2)]
    assert again[0] == again[1]
    assert ring.quantise(values, 7).tolist() != ring.quantise(values, 7).tolist()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(PayloadError, match="not finite"):
        Ring(8, 2, 1.0).quantise(np.array([0.0, bad], np.float32), 1)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"value_bits": 1}, "must have 2 to 16"),
        ({"value_bits": 17}, "must have 2 to 16"),
        ({"most_members": 0}, "1 or more"),
        ({"clip": 0.0}, "from 1e-20"),
        ({"clip": float("nan")}, "from 1e-20"),
        ({"value_bits": 16, "most_members": 65537}, "use at most 15 bits a value, or at most 65536 members"),
    ],
)
def test_terms_that_cannot_work_are_refused(change: dict[str, float], told: str) -> None:
    with pytest.raises(InputError, match=told):
        Ring(**{"value_bits": 10, "most_members": 32, "clip": 1.0, **change})  # type: ignore[arg-type]


def test_sums_that_honest_members_cannot_have_are_refused() -> None:
    ring = Ring(8, 4, 1.0)
    honest = ring.quantise(np.zeros(3, np.float32), 10)
    assert ring.refusal(honest, 1) == ""
    for place, word, told in [(0, 0, "weights"), (0, 256, "weights"), (1, 200, "value"), (2, ring.mask - 200, "value")]:
        forged = honest.copy()
        forged[place] = word
        assert told in ring.refusal(forged, 1)
        with pytest.raises(PayloadError, match=told):
            ring.decode(forged, 1)


def test_weights_outside_the_range_are_refused() -> None:
    ring = Ring(8, 4, 1.0)
    assert (ring.weight(0.0), ring.weight(1.0), ring.weight(3.0)) == (1, 255, 255)
    for weight in (0, 256):
        with pytest.raises(InputError, match="must be 1 to 255"):
            ring.quantise(np.zeros(1, np.float32), weight)
