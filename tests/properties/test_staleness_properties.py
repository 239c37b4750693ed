"""Properties of the staleness policies."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnraise import staleness

speeds = st.floats(allow_nan=True, allow_infinity=True)


@given(speeds, st.integers(0, 1000), st.integers(0, 1000), st.floats(1, 1000))
def test_bound_stays_within_its_limits(speed: float, most: int, least: int, multiplier: float) -> None:
    least = min(least, round(most * multiplier))
    policy = staleness.create("adaptive", max_staleness=most, min_staleness=least, max_staleness_multiplier=multiplier)
    assert least <= policy.bound(speed) <= round(most * multiplier)


@given(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6))
def test_the_slower_may_be_the_staler(a: float, b: float) -> None:
    policy = staleness.create("adaptive")
    assert policy.bound(min(a, b)) >= policy.bound(max(a, b))


@given(st.sampled_from(["constant", "inverse_sqrt"]), st.integers(0, 10**9))
def test_weight_falls_within_zero_and_one(weighting: str, tau: int) -> None:
    policy = staleness.create("fixed", weighting=weighting)
    assert 0 < policy.weight(tau + 1) <= policy.weight(tau) <= policy.weight(0) == 1
