"""The terms of equation 8, against scipy, the ring of masks, and sums by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, norm

from barnraise.core.errors import InputError
from barnraise.privacy.failure import FailureTerms, collusion, forgery, ring_wrap
from barnraise.privacy.masking.ring import Ring


@given(st.integers(1, 40), st.floats(0, 1), st.data())
def test_collusion_is_the_upper_tail_of_a_binomial(trustees: int, probability: float, data: st.DataObject) -> None:
    tolerated = data.draw(st.integers(0, trustees))
    expected = binom.sf(tolerated, trustees, probability)
    assert collusion(trustees, tolerated, probability) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(st.integers(2, 10), st.integers(1, 512))
def test_the_ring_of_masks_never_wraps_without_noise(value_bits: int, members: int) -> None:
    ring = Ring(value_bits, members, 1.0)
    assert ring_wrap(ring.bits, members, ring.limit) == 0.0


def test_a_ring_without_room_wraps() -> None:
    ring = Ring(10, 16, 1.0)
    assert ring_wrap(ring.bits - 1, 16, ring.limit) == 1.0


def test_noise_wraps_with_the_two_tails_of_a_gaussian_for_each_word() -> None:
    room = 2**13 - 8 * 511
    assert ring_wrap(14, 8, 511, deviation=1000.0, words=3) == pytest.approx(6 * norm.sf(room / 1000.0))


def test_forgeries_add_up_over_attempts() -> None:
    assert forgery(2.0**64) == 2.0**-64
    assert forgery(0, 2.0**40, 32) == 3 * 2.0**-63


def test_the_total_is_the_sum_of_its_terms_and_at_most_one() -> None:
    assert FailureTerms(1e-3, 0.0, 1e-5, 2.0**-64).total == pytest.approx(1e-3 + 1e-5 + 2.0**-64)
    assert FailureTerms(0.7, 0.7).total == 1.0


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: FailureTerms(collusion=1.5), "collusion is 1.5, but a probability is from 0 to 1"),
        (lambda: collusion(4, 5, 0.1), "5 of 4 trustees may collude; give a number from 0 to 4"),
        (lambda: collusion(4, 1, -0.1), "probability is -0.1"),
        (lambda: ring_wrap(0, 1, 1), "a ring of 0 bits"),
        (lambda: forgery(-1), "impossible; give 0 or more"),
    ],
)
def test_impossible_numbers_are_refused(call: object, said: str) -> None:
    assert callable(call)
    with pytest.raises(InputError, match=said):
        call()
