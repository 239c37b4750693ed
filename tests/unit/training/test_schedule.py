"""Learning-rate schedules over tokens."""

from __future__ import annotations

import math

import pytest

from barnraise.core.errors import OptionError, UnknownNameError
from barnraise.training.schedule import SHAPES, Schedule


@pytest.mark.parametrize(
    ("shape", "halfway", "end"),
    [("constant", 1.0, 1.0), ("linear", 0.6, 0.2), ("cosine", 0.6, 0.2), ("wsd", 1.0, 0.2)],
)
def test_shapes(shape: str, halfway: float, end: float) -> None:
    rate = Schedule(shape, warmup_tokens=100, final_fraction=0.2).rate
    assert [rate(tokens, 1100) for tokens in (0, 25, 100)] == [0.0, 0.25, 1.0]
    assert math.isclose(rate(600, 1100), halfway)
    assert math.isclose(rate(1100, 1100), end)
    assert rate(5000, 1100) == rate(1100, 1100)


@pytest.mark.parametrize("shape", SHAPES)
def test_falls_steadily_after_the_warm_up(shape: str) -> None:
    rates = [Schedule(shape, 10, 0.1).rate(tokens, 200) for tokens in range(300)]
    assert rates[:11] == sorted(rates[:11])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert max(rates) == 1.0


@pytest.mark.parametrize("shape", SHAPES)
def test_runs_shorter_than_their_warm_up(shape: str) -> None:
    schedule = Schedule(shape, warmup_tokens=100, final_fraction=0.5)
    assert schedule.rate(50, 50) == 0.5
    assert schedule.rate(100, 100) == schedule.rate(10**9, 0) == (1.0 if shape == "constant" else 0.5)


def test_wsd_is_flat_and_then_falls_by_a_root() -> None:
    rate = Schedule("wsd", final_fraction=0.0).rate
    assert [round(rate(tokens, 100), 3) for tokens in (0, 50, 80, 85, 90, 95, 100)] == [
        1.0, 1.0, 1.0, 0.5, 0.293, 0.134, 0.0
    ]  # fmt: skip


def test_cosine_is_slow_at_both_ends() -> None:
    rate = Schedule("cosine", 0, 0.0).rate
    assert math.isclose(rate(25, 100), (1 + math.cos(math.pi / 4)) / 2)
    assert rate(10, 100) > 0.9 > 0.1 > rate(90, 100)


def test_invalid_options_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'cosine'"):
        Schedule("cosin")
    with pytest.raises(OptionError, match="warmup_tokens is -1"):
        Schedule("linear", warmup_tokens=-1)
    with pytest.raises(OptionError, match=r"final_fraction is 1\.5"):
        Schedule("linear", final_fraction=1.5)
