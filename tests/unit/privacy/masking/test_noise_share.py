"""Members' shares of noise: the bound of rounded updates, and the noise of a sum that is read from masks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from barnraise.core.errors import InputError
from barnraise.privacy.accounting import noise_share
from barnraise.privacy.masking.noise_share import NoiseShare
from barnraise.privacy.masking.ring import Ring

CLIP, NOISE, HONEST = 1.0, 2.0, 4
SHARE = noise_share(NOISE, HONEST) * CLIP
RING = Ring(12, 8, CLIP + 8.0 * SHARE / 2.0, SHARE)


@pytest.mark.parametrize("size", [1, 100, 200_000])
@pytest.mark.parametrize("length", [0.0, 0.5, 1.0, 50.0])
def test_a_rounded_update_is_no_longer_than_the_bound(size: int, length: float) -> None:
    values = np.random.default_rng(size).normal(size=size).astype(np.float32)
    values *= np.float32(length) / np.linalg.norm(values)
    share = NoiseShare(RING, CLIP)
    signed = RING.signed(share.bounded(values, RING.most_weight)[1:])
    assert math.sqrt(float(np.square(signed).sum())) <= CLIP / RING.step


def test_an_update_that_only_rounding_lengthens_is_shortened_and_keeps_its_direction() -> None:
    coarse = Ring(8, 8, 8.0, 1.0)  # a bound of 15.9 steps, and rounding of 200,000 values adds hundreds
    values = np.full(200_000, np.float32(1.0 / math.sqrt(200_000)))
    signed = coarse.signed(NoiseShare(coarse, CLIP).bounded(values, coarse.most_weight)[1:])
    assert math.sqrt(float(np.square(signed).sum())) <= CLIP / coarse.step


def test_the_sum_of_the_honest_members_holds_the_whole_noise() -> None:
    size = 40_000
    total = np.zeros(1 + size, RING.dtype)
    for _ in range(HONEST):
        share = NoiseShare(RING, CLIP)
        words = share.bounded(np.zeros(size, np.float32), RING.most_weight)
        share.add(words)
        RING.add(total, words)
    found = RING.signed(total[1:]) * RING.step
    assert float(found.std()) == pytest.approx(NOISE * CLIP, rel=0.02)  # five standard errors
    assert abs(float(found.mean())) < 5 * NOISE * CLIP / math.sqrt(size)


def test_noise_is_added_behind_the_weight_which_does_not_scale_it() -> None:
    size, light = 40_000, RING.weight(0.01)
    share = NoiseShare(RING, CLIP)
    words = share.bounded(np.zeros(size, np.float32), light)
    share.add(words)
    assert int(words[0]) == light
    assert float((RING.signed(words[1:]) * RING.step).std()) == pytest.approx(SHARE, rel=0.02)


def test_a_ring_that_is_too_coarse_for_a_share_is_refused() -> None:
    with pytest.raises(InputError, match=r"raise privacy\.secure_aggregation\.value_bits"):
        NoiseShare(Ring(4, 8, 8.0, 1.0), CLIP)
