"""The claims of a node stay within numbers that arithmetic can handle."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnraise.core.types import LinkReport, NodeProfile

numbers = st.floats(min_value=0.0, max_value=1e15)


@given(numbers, numbers, numbers)
def test_a_claim_is_zero_or_within_its_limits_however_it_came(rate: float, up: float, seconds: float) -> None:
    made = [NodeProfile(rate, up_bytes_per_second=up), LinkReport(min(seconds, 1e12), up, rate)]
    for claim in made:
        again = msgspec.msgpack.decode(msgspec.msgpack.encode(claim), type=type(claim))
        assert again == claim
        for name, value in msgspec.structs.asdict(claim).items():
            if isinstance(value, float) and value and name not in ("round_trip", "latency_seconds"):
                assert math.isfinite(1.0 / value)
                assert value <= 1e12


@pytest.mark.parametrize("claim", [5e-324, 1e-4])
def test_an_impossible_claimed_rate_is_read_as_unknown(claim: float) -> None:
    data = msgspec.msgpack.encode({"tokens_per_second": claim, "up_bytes_per_second": claim})
    profile = msgspec.msgpack.decode(data, type=NodeProfile)
    assert (profile.tokens_per_second, profile.up_bytes_per_second) == (0.0, 0.0)


def test_delays_are_an_hour_at_most() -> None:
    assert LinkReport(round_trip=1e12).round_trip == NodeProfile(latency_seconds=1e12).latency_seconds == 3600.0
