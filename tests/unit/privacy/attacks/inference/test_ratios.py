"""Likelihood ratios of membership, against scipy's densities, and curves of errors, against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu, norm

from barnraise.privacy.attacks.inference import ratios


def shadows_of(models: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    member = ratios.halves(6, models, rng)
    return rng.normal(size=(6, models)) + 2.0 * member, member


@given(st.integers(1, 20), st.integers(1, 40), st.integers(0, 1000))
def test_each_target_is_in_half_of_the_models(targets: int, half: int, seed: int) -> None:
    member = ratios.halves(targets, 2 * half, np.random.default_rng(seed))
    assert member.sum(1).tolist() == [half] * targets


def test_many_shadows_give_each_target_its_own_gaussians() -> None:
    shadows, member = shadows_of(100)
    seen = np.linspace(-1.0, 3.0, 6)
    inside = [norm.fit(row[chosen]) for row, chosen in zip(shadows, member, strict=True)]
    outside = [norm.fit(row[~chosen]) for row, chosen in zip(shadows, member, strict=True)]
    unbiased = np.sqrt(50 / 49)
    expected = [
        norm.logpdf(x, a[0], a[1] * unbiased) - norm.logpdf(x, b[0], b[1] * unbiased)
        for x, a, b in zip(seen, inside, outside, strict=True)
    ]
    np.testing.assert_allclose(ratios.online(seen, shadows, member), expected)


def test_few_shadows_share_one_variance() -> None:
    shadows, member = shadows_of(8)
    deviation = np.sqrt(np.mean([row[~chosen].var(ddof=1) for row, chosen in zip(shadows, member, strict=True)]))
    means = np.array([row[~chosen].mean() for row, chosen in zip(shadows, member, strict=True)])
    np.testing.assert_allclose(ratios.offline(means + 3.0 * deviation, shadows, member), 3.0)


def test_a_likelihood_ratio_adapts_to_rows_that_are_easy_for_all_models() -> None:
    rng = np.random.default_rng(1)
    ease = 10.0 * rng.normal(size=(50, 1))
    member = ratios.halves(50, 20, rng)
    shadows = ease + rng.normal(size=(50, 20)) + 4.0 * member
    truth = rng.random(50) < 0.5
    seen = ease[:, 0] + rng.normal(size=50) + 4.0 * truth
    assert ratios.auc(ratios.online(seen, shadows, member), truth) > 0.95
    assert ratios.auc(ratios.loss_threshold(seen, shadows, member), truth) < 0.8


def test_the_area_under_the_curve_is_that_of_mann_and_whitney() -> None:
    rng = np.random.default_rng(2)
    statistics, member = rng.integers(0, 5, 60).astype(float), rng.random(60) < 0.4
    expected = mannwhitneyu(statistics[member], statistics[~member]).statistic / member.sum() / (~member).sum()
    assert ratios.auc(statistics, member) == pytest.approx(expected)


def test_true_positives_are_counted_above_the_allowed_false_ones() -> None:
    statistics = np.array([9.0, 7.0, 5.0, 3.0, 8.0, 6.0, 4.0, 2.0])
    member = np.array([True] * 4 + [False] * 4)
    assert ratios.true_positives(statistics, member, 0.0) == 0.25
    assert ratios.true_positives(statistics, member, 0.25) == 0.5
    assert ratios.true_positives(statistics, member, 1.0) == 1.0
