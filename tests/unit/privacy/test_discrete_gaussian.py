"""The discrete Gaussian: its probabilities, for wide and narrow ones."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from barnraise.core.errors import InputError
from barnraise.privacy.discrete_gaussian import discrete_gaussian


@pytest.mark.parametrize("variance", [Fraction(1, 3), Fraction(1), Fraction(50, 7), Fraction(400)])
def test_a_sample_has_the_probabilities_of_the_distribution(variance: Fraction) -> None:
    found = discrete_gaussian(8000, variance)
    reach = int(np.ceil(8 * float(variance) ** 0.5)) + 2
    places = np.arange(-reach, reach + 1)
    weights = np.exp(-(places**2) / (2 * float(variance)))
    expected = 8000 * weights / weights.sum()
    counted = np.array([(found == place).sum() for place in places])
    often = expected >= 8
    counted = np.append(counted[often], 8000 - counted[often].sum())
    expected = np.append(expected[often], max(8000 - expected[often].sum(), 1e-9))
    expected *= counted.sum() / expected.sum()
    kept = expected > 0.5
    assert counted[~kept].sum() <= 3
    expected[kept] *= counted[kept].sum() / expected[kept].sum()
    assert stats.chisquare(counted[kept], expected[kept]).pvalue > 1e-6


def test_a_variance_that_is_not_positive_is_refused() -> None:
    with pytest.raises(InputError, match="the variance is 0, must be above 0"):
        discrete_gaussian(1, 0)
