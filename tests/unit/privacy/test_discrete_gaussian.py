"""The discrete Gaussian: its probabilities, for wide and narrow ones, and the draw of a number between two entries."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from barnraise.core.errors import InputError
from barnraise.privacy.discrete_gaussian import HALF, DiscreteGaussian


@pytest.mark.parametrize("variance", [1 / 3, 1.0, 50 / 7, 400.0, 1e6])
def test_a_sample_has_the_probabilities_of_the_distribution(variance: float) -> None:
    count = 40_000
    found = DiscreteGaussian(variance).draw(count)
    reach = int(np.ceil(8 * variance**0.5)) + 2
    places = np.arange(-reach, reach + 1)
    weights = np.exp(-(places**2) / (2 * variance))
    step = max(1, int(variance**0.5) // 8)
    expected = np.add.reduceat(count * weights / weights.sum(), np.arange(0, places.size, step))
    counted = np.add.reduceat(np.bincount(found + reach, minlength=places.size), np.arange(0, places.size, step))
    often = expected >= 8
    counted = np.append(counted[often], count - counted[often].sum())
    expected = np.append(expected[often], count - expected[often].sum())
    if expected[-1] < 2:
        counted, expected = counted[:-1], expected[:-1] * counted[:-1].sum() / expected[:-1].sum()
    assert stats.chisquare(counted, expected).pvalue > 1e-6


def test_draws_of_two_samplers_differ() -> None:
    first, second = DiscreteGaussian(100.0).draw(1000), DiscreteGaussian(100.0).draw(1000)
    assert abs(float(np.corrcoef(first, second)[0, 1])) < 0.2
    assert float(first.var()) == pytest.approx(100.0, rel=0.3)


def test_a_number_between_two_entries_of_one_upper_half_is_decided_by_the_lower_half() -> None:
    sampler = DiscreteGaussian(1.0)
    bounds = sampler._bounds
    place = len(bounds) // 2  # the bound above 0
    word = bounds[place] >> HALF
    low = (bounds[place] & ((1 << HALF) - 1)) / 2**HALF
    found = [sampler._decided(word, place + 1) for _ in range(2000)]
    assert set(found) <= {place, place + 1}
    assert found.count(place) / 2000 == pytest.approx(low, abs=0.06)


def test_the_table_is_symmetric_and_ends_where_nothing_is_left() -> None:
    bounds = DiscreteGaussian(9.0)._bounds
    whole = 1 << 128
    assert bounds == sorted(bounds)
    assert all(abs(below + above - whole) <= 2 for below, above in zip(bounds, reversed(bounds), strict=True))
    assert bounds[0] <= 2


@pytest.mark.parametrize("variance", [0.0, -1.0, float("nan"), 1e12])
def test_a_variance_out_of_range_is_refused(variance: float) -> None:
    with pytest.raises(InputError, match="must be above 0 and at most"):
        DiscreteGaussian(variance)
