"""Staleness policies: bounds and weights."""

from __future__ import annotations

import math

import pytest

from barnraise import staleness
from barnraise.core.errors import OptionError, UnknownNameError
from barnraise.staleness.buffer import least_buffer, least_buffer_for_lines


@pytest.mark.parametrize(
    ("speed", "bound"),
    [
        (1.0, 50),
        (2.0, 25),
        (0.5, 100),
        (0.3, 167),
        (0.1, 500),
        (0.01, 500),
        (1e-320, 500),
        (100.0, 5),
        (math.inf, 5),
        (0.0, 500),
        (-1.0, 500),
        (math.nan, 500),
    ],
)
def test_adaptive_bound(speed: float, bound: int) -> None:
    policy = staleness.create("adaptive", max_staleness=50, min_staleness=5, max_staleness_multiplier=10)
    assert policy.bound(speed) == bound
    assert type(policy.bound(speed)) is int
    assert staleness.create("fixed", max_staleness=50).bound(speed) == 50


def test_zero_is_a_bound() -> None:
    assert staleness.create("fixed", max_staleness=0).bound(1.0) == 0
    assert staleness.create("adaptive", max_staleness=0, min_staleness=0).bound(0.3) == 0


@pytest.mark.parametrize("name", staleness.names())
def test_weights(name: str) -> None:
    assert [staleness.create(name).weight(tau) for tau in (0, 1, 100)] == [1.0, 1.0, 1.0]
    weight = staleness.create(name, weighting="inverse_sqrt").weight
    assert [weight(tau) for tau in (0, 1, 4, 9)] == [1.0, 1 / 2, 1 / 3, 1 / 4]


@pytest.mark.parametrize(
    ("rates", "bound", "expected"),
    [
        ([], 5, 1),
        ([0.0, 0.0], 5, 1),
        ([100.0] * 4, 5, 2),  # 2 * 400 / (100 * 5)
        ([1.0, 2.0, 4.0, 8.0, 0.0], 5, 6),
        ([1.0, 2.0, 0.0], 0, 3),
    ],
)
def test_the_least_buffer(rates: list[float], bound: int, expected: int) -> None:
    assert least_buffer(rates, lambda speed: bound) == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], 1),
        ([1e9] * 8, 1),
        ([1e6] * 8, 4),  # 2 versions' bytes a second, and half of the line
        ([1e6] * 6 + [1e9] * 2, 4),
        ([1e9] * 7 + [1.0], 1),  # one may say what it likes
        ([1e9] * 5 + [1.0, 1.0, 1e6], 4),
    ],
)
def test_the_least_buffer_for_lines(lines: list[float], expected: int) -> None:
    assert least_buffer_for_lines(2.0, 1_000_000, lines) == expected


def test_the_median_of_an_even_number_of_nodes_lies_between_the_middle_two() -> None:
    asked: list[float] = []
    least_buffer([1.0, 3.0], lambda speed: asked.append(speed) or 5)
    assert asked == [0.5, 1.5]


def test_invalid_options_are_refused() -> None:
    assert staleness.names() == ["adaptive", "fixed"]
    with pytest.raises(UnknownNameError, match="did you mean 'adaptive'"):
        staleness.create("adaptiv")
    with pytest.raises(UnknownNameError, match="did you mean 'inverse_sqrt'"):
        staleness.create("fixed", weighting="inverse_square")
    with pytest.raises(OptionError, match="has no option 'min_staleness'"):
        staleness.create("fixed", min_staleness=3)
    with pytest.raises(OptionError, match=r"min_staleness is 30, but must be at most .* = 20"):
        staleness.create("adaptive", max_staleness=10, max_staleness_multiplier=2, min_staleness=30)
    with pytest.raises(OptionError, match="at least 0"):
        staleness.create("fixed", max_staleness=-1)
