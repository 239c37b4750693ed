"""Accounting: known figures, an exact composition, two other accountants, and how epsilon moves."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnraise.core.errors import InputError
from barnraise.privacy.accounting import (
    epsilon,
    gaussian_epsilon,
    most_steps,
    noise_share,
    smallest_noise,
)

DELTA = 1e-5
FIGURES = [(1.0, 0.01, 1000, 1.828), (0.8, 0.02, 2000, 9.14), (4.0, 1.0, 100, 13.21)]
NOISES, RATES, STEPS = st.floats(0.7, 8.0), st.sampled_from([0.01, 0.1, 0.5, 1.0]), st.integers(1, 200)


@pytest.mark.parametrize(("noise", "rate", "steps", "known"), FIGURES)
def test_epsilon_is_within_a_percent_of_known_figures(noise: float, rate: float, steps: int, known: float) -> None:
    assert epsilon(noise, rate, steps, DELTA) == pytest.approx(known, rel=0.01)


@pytest.mark.parametrize(("noise", "rate", "steps", "known"), FIGURES)
def test_a_second_accountant_agrees(noise: float, rate: float, steps: int, known: float) -> None:
    """Opacus bounds epsilon from its own discretisation (PRV), and by Renyi divergences, which are never tighter."""
    from opacus.accountants import PRVAccountant, RDPAccountant

    prv, renyi = PRVAccountant(), RDPAccountant()
    prv.history, renyi.history = [(noise, rate, steps)], [(noise, rate, steps)]
    found = epsilon(noise, rate, steps, DELTA)
    assert found == pytest.approx(prv.get_epsilon(DELTA, eps_error=0.01), abs=0.03)
    assert found <= renyi.get_epsilon(DELTA)


@given(NOISES, STEPS)
@settings(max_examples=15, deadline=None)
def test_epsilon_is_never_below_the_exact_composition(noise: float, steps: int) -> None:
    exact = gaussian_epsilon(noise, steps, DELTA)
    assert exact <= epsilon(noise, 1.0, steps, DELTA) <= 1.01 * exact + 0.01


@given(NOISES, RATES, STEPS)
@settings(max_examples=12, deadline=None)
def test_epsilon_grows_with_steps_and_rate_and_falls_with_noise(noise: float, rate: float, steps: int) -> None:
    found = epsilon(noise, rate, steps, DELTA)
    assert found <= epsilon(noise, rate, 2 * steps, DELTA)
    assert found >= epsilon(noise * 1.5, rate, steps, DELTA)
    assert found <= epsilon(noise, min(1.0, 2 * rate), steps, DELTA) + 1e-9


@pytest.mark.parametrize(("budget", "rate", "steps"), [(8.0, 0.05, 80), (1.0, 1.0, 4), (3.0, 1.0, 100)])
def test_the_smallest_noise_fits_its_budget_and_a_smaller_one_does_not(budget: float, rate: float, steps: int) -> None:
    noise = smallest_noise(budget, rate, steps, DELTA)
    assert epsilon(noise, rate, steps, DELTA) <= budget < epsilon(noise * 0.99, rate, steps, DELTA)
    assert most_steps(noise, rate, budget, DELTA, 2 * steps) >= steps
    assert epsilon(noise, rate, most_steps(noise, rate, budget, DELTA, 2 * steps) + 1, DELTA) > budget


def test_a_budget_that_no_noise_meets_is_refused() -> None:
    with pytest.raises(InputError, match=r"cannot be met in 1,000,000 steps: .* raise epsilon, or lower uses"):
        smallest_noise(1e-3, 1.0, 1_000_000, 1e-9)


def test_no_step_spends_nothing() -> None:
    assert epsilon(1.0, 0.1, 0, DELTA) == 0.0


def test_shares_of_noise_add_up_to_the_whole() -> None:
    assert math.sqrt(9 * noise_share(2.0, 9) ** 2) == pytest.approx(2.0)


@pytest.mark.parametrize(("noise", "steps"), [(1.0, 1), (2.0, 10), (8.0, 100)])
def test_integers_that_members_share_have_the_bound_of_concentrated_privacy(noise: float, steps: int) -> None:
    rho, delta = steps / (2 * noise**2), 1e-5
    loose = rho + 2 * math.sqrt(rho * math.log(1 / delta))  # Bun and Steinke 2016, proposition 1.3
    exact = epsilon(noise, 1.0, steps, delta)
    assert exact < epsilon(noise, 1.0, steps, delta, True) < loose
