"""Groups hold each member once, and their tolerance and anonymity are stated together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnraise.privacy.masking.groups import groups, shift, standing
from barnraise.privacy.masking.ring import Ring


@given(n=st.integers(1, 60), g=st.integers(0, 70), seed=st.binary(min_size=32, max_size=32))
def test_groups_hold_each_member_once_and_at_least_g(n: int, g: int, seed: bytes) -> None:
    names = [b"%d" % number for number in range(n)]
    found = groups(names, g, seed)
    assert sorted(place for group in found for place in group) == list(range(n))
    it = standing(n, g)
    assert len(found) == it.num_groups
    assert min(len(group) for group in found) == it.anonymity >= min(n, g or n)
    assert max(len(group) for group in found) - it.anonymity <= 1
    assert groups(names, g, seed) == found


@pytest.mark.parametrize(
    ("n", "g", "expected"),
    [(20, 2, (10, 2, 4)), (32, 4, (8, 4, 3)), (9, 3, (3, 3, 1)), (20, 0, (1, 20, 0)), (5, 8, (1, 5, 0))],
)
def test_tolerance_and_anonymity_are_those_of_the_bound(n: int, g: int, expected: tuple[int, int, int]) -> None:
    it = standing(n, g)
    assert it == expected
    if g and n >= g:
        assert it.tolerance < n / (2 * g)


def test_groups_depend_on_the_seed_as_chance_does() -> None:
    names = [b"%d" % number for number in range(8)]
    together = sum(
        any({0, 1} <= set(group) for group in groups(names, 2, number.to_bytes(32, "big"))) for number in range(2000)
    )
    assert together / 2000 == pytest.approx(1 / 7, abs=0.035)


def test_one_member_shifts_a_sum_by_no_more_than_is_said() -> None:
    ring = Ring(8, 4, 1.0)
    others, lowest = np.zeros(2, ring.dtype), ring.quantise(np.full(1, -9, np.float32), ring.most_weight)
    for _ in range(3):
        ring.add(others, lowest)
    reached = []
    for word in range(ring.mask + 1):
        total = others.copy()
        ring.add(total, np.array([ring.most_weight, word], ring.dtype))
        if not ring.refusal(total, 4):
            reached.append(int(ring.signed(total)[1]))
    assert max(reached) - int(ring.signed(others)[1]) == shift(ring, 4) == 7 * ring.limit
