"""Sums of ciphertexts as float32 digits: they come back, their differences are exact, and other digits are refused."""

from __future__ import annotations

import numpy as np
import pytest

from barnraise.core.errors import PayloadError
from barnraise.privacy.encryption.agreed import agreed
from barnraise.privacy.encryption.digits import Digits, from_digits, num_digits, terms_of, to_digits
from barnraise.privacy.encryption.envelope import Ciphertext
from barnraise.privacy.encryption.scheme import DEGREE, MODULUS

AGREEMENT = agreed("barn/" + "ab" * 16, 4096, 1.0, 5000)


def a_sum(seed: int, terms: int = 3) -> Ciphertext:
    residues = np.random.default_rng(seed).integers(0, MODULUS, (2, 2, DEGREE), dtype=np.uint64)
    residues[0, 0, :2] = 0, MODULUS - 1
    return Ciphertext(AGREEMENT.header(terms), residues)


def changed(place: int, value: float) -> Digits:
    digits = to_digits(a_sum(1))
    digits[place] = value
    return digits


def test_a_sum_comes_back_from_its_digits() -> None:
    digits = to_digits(a_sum(1))
    assert (digits.dtype, digits.size, terms_of(digits)) == (np.float32, num_digits(5000), 3)
    found = from_digits(digits, AGREEMENT)
    assert found is not None
    assert found.header == a_sum(1).header
    assert np.array_equal(found.residues, a_sum(1).residues)


def test_a_difference_of_two_versions_is_exact_in_float32() -> None:
    before, after = to_digits(a_sum(1)), to_digits(a_sum(2, 4))
    assert np.array_equal(before - (before - after), after)


def test_zeros_are_the_sum_of_no_update() -> None:
    assert from_digits(np.zeros(num_digits(5000), dtype=np.float32), AGREEMENT) is None


@pytest.mark.parametrize(
    ("digits", "said"),
    [
        (np.zeros(7, dtype=np.float32), "a version of 7 digits, but encrypted sums of this run have 65537"),
        (changed(5, 0.5), "no whole numbers from 0 to 16777215"),
        (changed(5, -1.0), "no whole numbers"),
        (changed(5, 2.0**24), "no whole numbers"),
        (changed(5, float("nan")), "no whole numbers"),
        (changed(5, float("inf")), "no whole numbers"),
        (changed(-1, 4097.0), "the sum of 4097 updates, at most 4096 are allowed"),
        (changed(3, 2.0**24 - 1), f"is not below the modulus {MODULUS}"),
    ],
)
def test_digits_that_are_no_sum_are_refused(digits: Digits, said: str) -> None:
    with pytest.raises(PayloadError, match=said):
        from_digits(digits, AGREEMENT)
