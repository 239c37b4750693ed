"""The classifier of present tokens: it uses a signal where there is one, and the frequency where there is none."""

from __future__ import annotations

import numpy as np
import pytest

from barnraise.privacy.attacks.updates.shadows import TokenClassifier, clear, f1, standardised


def test_a_signal_is_learned_and_a_useless_feature_is_ignored() -> None:
    rng = np.random.default_rng(0)
    truths = [rng.random(400) < 0.1 for _ in range(8)]
    useful = [np.stack([truth * 4.0 + rng.standard_normal(400), rng.standard_normal(400)], 1) for truth in truths]
    fitted = TokenClassifier.fit(useful[:6], truths[:6])
    assert np.mean([f1(fitted.present(one), truth) for one, truth in zip(useful[6:], truths[6:], strict=True)]) > 0.8
    assert abs(fitted.weights[0]) > 10 * abs(fitted.weights[1])


def test_a_perfect_signal_does_not_overflow() -> None:
    truth = np.arange(50) < 5
    fitted = TokenClassifier.fit([truth[:, None] * 1e6], [truth])
    assert f1(fitted.present(truth[:, None] * 1e6), truth) == 1.0


def test_a_clear_gap_sets_tokens_apart() -> None:
    found = clear(np.array([1.0, 0.01, 2.0, 0.011, 0.012, 1.5, 0.013, 0.014, 0.0101, 0.0102]), count=4)
    assert found is not None
    assert np.flatnonzero(found).tolist() == [0, 2, 5]


@pytest.mark.parametrize("strength", [np.linspace(1.0, 2.0, 30), np.full(30, 0.0)])
def test_noise_has_no_clear_gap(strength: np.ndarray) -> None:
    assert clear(strength, count=4) is None


def test_standardised_values_have_mean_and_deviation() -> None:
    found = standardised(np.random.default_rng(0).random(1000))
    assert found.shape == (1000, 1)
    assert found.mean() == pytest.approx(0.0, abs=1e-9)
    assert found.std() == pytest.approx(1.0, abs=1e-6)
