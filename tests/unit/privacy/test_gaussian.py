"""Noise from a cryptographic stream: its distribution, and that no seed repeats it."""

from __future__ import annotations

import numpy as np
import torch
from scipy import stats

from barnraise.privacy.gaussian import SecretStream, add_noise, box_muller

SURE = 1e-6
"""Probability with which a test of a correct distribution may fail."""


def test_noise_is_normal_with_its_deviation() -> None:
    values = np.zeros(200_001, np.float32)
    add_noise(values, 0.25, SecretStream())
    assert stats.kstest(values / 0.25, "norm").pvalue > SURE
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 5 / np.sqrt(values.size)


def test_a_seed_of_torch_or_numpy_does_not_repeat_noise() -> None:
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        np.random.seed(0)
        found.append(SecretStream().normal(64))
    assert not np.array_equal(*found)


def test_a_sample_takes_each_place_with_its_rate() -> None:
    sizes = [SecretStream().chosen(1000, 0.05).size for _ in range(400)]
    assert stats.binomtest(sum(sizes), 400_000, 0.05).pvalue > SURE
    assert np.var(sizes) > 25.0  # a batch of a fixed size has none; this one 47.5
    assert SecretStream().chosen(7, 1.0).tolist() == list(range(7))


def test_the_transform_has_both_halves_of_a_pair() -> None:
    found = box_muller(np.array([np.exp(-0.5)]), np.array([0.25]))
    np.testing.assert_allclose(found, [0.0, 1.0], atol=1e-12)
