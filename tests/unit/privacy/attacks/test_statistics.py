"""Exact intervals, tests and effects, against scipy and figures computed by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, chi2_contingency, fisher_exact

from barnraise.core.errors import InputError
from barnraise.privacy.attacks.statistics import Share, clopper_pearson, cohens_h, compare, least_expected


def test_no_success_of_a_hundred_trials_has_an_interval_computed_by_hand() -> None:
    low, high = clopper_pearson(0, 100)
    assert low == 0.0
    assert high == pytest.approx(1 - 0.025 ** (1 / 100))


def test_only_successes_have_the_mirrored_interval() -> None:
    low, high = clopper_pearson(100, 100)
    assert (low, high) == (pytest.approx(0.025 ** (1 / 100)), 1.0)


@given(st.integers(1, 300).flatmap(lambda trials: st.tuples(st.integers(0, trials), st.just(trials))))
def test_intervals_equal_those_of_scipy(case: tuple[int, int]) -> None:
    expected = binomtest(*case).proportion_ci(0.95, method="exact")
    assert clopper_pearson(*case) == pytest.approx((expected.low, expected.high), abs=1e-9)


@given(st.integers(1, 60), st.floats(0.01, 0.99))
def test_intervals_cover_the_true_share_as_often_as_they_say(trials: int, share: float) -> None:
    covered = sum(
        binom.pmf(successes, trials, share)
        for successes in range(trials + 1)
        if (found := Share.of(successes, trials)).low <= share <= found.high
    )
    assert covered >= 0.95 - 1e-9


def test_few_expected_counts_are_compared_exactly() -> None:
    found = compare(9, 100, 0, 100)
    assert found.test == "fisher"
    assert found.p_value == pytest.approx(fisher_exact([[9, 91], [0, 100]]).pvalue)


def test_many_expected_counts_are_compared_by_chi_square() -> None:
    found = compare(60, 100, 40, 100)
    assert found.test == "chi-square"
    # Yates: sum over four cells of (|observed - 50| - 0.5)^2 / 50 = 4 * 9.5^2 / 50 = 7.22, of one degree of freedom.
    assert found.p_value == pytest.approx(math.erfc(math.sqrt(7.22 / 2)))
    assert found.p_value == pytest.approx(chi2_contingency([[60, 40], [40, 60]])[1])


@given(st.integers(0, 50), st.integers(0, 50))
def test_comparisons_are_symmetric(first: int, second: int) -> None:
    one, other = compare(first, 50, second, 50), compare(second, 50, first, 50)
    assert one.p_value == pytest.approx(other.p_value)
    assert one.effect == pytest.approx(-other.effect)
    assert 0.0 <= one.p_value <= 1.0 + 1e-9


def test_the_least_expected_count_is_of_the_smallest_margins() -> None:
    assert least_expected([[3, 7], [1, 29]]) == pytest.approx(1.0)


def test_cohens_h_has_the_value_of_the_book() -> None:
    """Cohen 1988, table 6.2.2: phi(0.65) = 1.875, phi(0.50) = 1.571."""
    assert cohens_h(0.65, 0.50) == pytest.approx(0.304, abs=0.001)


@pytest.mark.parametrize(("successes", "trials"), [(0, 0), (-1, 5), (6, 5)])
def test_impossible_counts_are_refused(successes: int, trials: int) -> None:
    with pytest.raises(InputError, match="trials"):
        clopper_pearson(successes, trials)


def test_a_confidence_of_one_is_refused() -> None:
    with pytest.raises(InputError, match=r"0\.95"):
        clopper_pearson(1, 2, 1.0)
