"""Bounds of a sum of ciphertexts: refusals name the value, the limit and a remedy."""

from __future__ import annotations

import math

import pytest

from barnraise.core.errors import InputError
from barnraise.privacy.encryption import scheme
from barnraise.privacy.encryption.scheme import SumBudget


def is_prime(number: int) -> bool:
    """Miller and Rabin's test with bases that decide every number below 3e24."""
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41):
        power = pow(base, odd, number)
        if power not in (1, number - 1) and all((power := power * power % number) != number - 1 for _ in range(twos)):
            return False
    return True


def test_the_modulus_is_the_second_largest_prime_of_its_kind() -> None:
    candidates = range(2**48 - 2 * scheme.DEGREE + 1, 0, -2 * scheme.DEGREE)
    primes = [number for number, _ in zip(candidates, range(200), strict=False) if is_prime(number)]
    assert primes[1] == scheme.MODULUS


@pytest.mark.parametrize("parties", [1, 2, 8, 32, 512, 513, 4096, scheme.MOST_PARTIES])
def test_a_full_sum_with_its_noise_stays_below_half_of_the_modulus(parties: int) -> None:
    budget = SumBudget(parties, 1.0)
    noise = 20 * scheme.RAW_NOISE * math.sqrt(parties)
    assert parties * budget.levels * budget.scale + noise < scheme.MODULUS / 2
    assert budget.noise(parties) < 0.5


@pytest.mark.parametrize("parties", [4096, 65536, scheme.MOST_PARTIES])
def test_a_sum_of_a_whole_run_has_steps_as_fine_as_its_reach_allows(parties: int) -> None:
    budget = SumBudget(parties, 1.0, reach=1.0, error=math.inf)
    assert 2**-29 < budget.step < 2**-23
    most = budget.largest(parties) * budget.scale + 20 * scheme.RAW_NOISE * math.sqrt(parties)
    assert most < scheme.MODULUS / 2
    assert budget.levels * budget.step == pytest.approx(1.0)


def test_a_reach_beyond_all_updates_at_their_bound_is_refused() -> None:
    with pytest.raises(InputError, match=r"the largest value of a sum is 9\.0, must be from 2, .* to 8"):
        SumBudget(4, 2.0, reach=9.0)


@pytest.mark.parametrize(
    ("parties", "bound", "said"),
    [
        (0, 1.0, "0 ciphertexts in one sum, but its noise allows 1 to 1048576"),
        (1048577, 1.0, "let fewer updates close a version"),
        (2, math.inf, "the bound of encrypted values is inf"),
        (2, math.nan, "must be from 1e-30 to 1e30"),
        (2, -1.0, "must be from 1e-30 to 1e30"),
    ],
)
def test_a_budget_refuses_sums_that_it_cannot_bound(parties: int, bound: float, said: str) -> None:
    with pytest.raises(InputError, match=said):
        SumBudget(parties, bound)


def test_a_value_above_the_bound_is_refused_with_the_remedy() -> None:
    with pytest.raises(InputError, match=r"0\.6 is to be encrypted, at most 0\.5 fits in a sum of 8; clip updates"):
        SumBudget(8, 0.5).refuse_magnitude(0.6)
    with pytest.raises(InputError, match="nan"):
        SumBudget(8, 0.5).refuse_magnitude(math.nan)


def test_a_rounding_error_above_the_limit_is_refused_with_the_remedy() -> None:
    with pytest.raises(InputError, match=r"by 0\.0002 of its norm, at most 0\.0001 is allowed; lower the bound"):
        SumBudget(8, 0.5).refuse_error(2e-4)
    SumBudget(8, 0.5).refuse_error(1e-4)
