"""Local steps and rates: nodes finish together, and rates never rise with staleness or steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnraise.training.pace import (
    Speed,
    aligned_steps,
    hindered_steps,
    literal_steps,
    local_steps,
    rate_factor,
    round_seconds,
)

speeds = st.builds(Speed, st.floats(1e-3, 10.0), st.floats(0.0, 100.0))


def test_unequal_nodes_finish_together() -> None:
    nodes = [Speed(0.1, 0.5), Speed(0.2, 0.1), Speed(0.5, 1.0)]
    length = round_seconds(nodes, 20)
    assert length == pytest.approx(11.0)  # the slowest: 20 steps of 0.5 s, and 1 s of exchange
    assert [local_steps(node, length, 1000) for node in nodes] == [105, 55, 20]


def test_communication_is_at_most_a_fifth() -> None:
    nodes = [Speed(0.01, 10.0)] * 3
    length = round_seconds(nodes, 20)
    assert length == pytest.approx(50.0)
    assert local_steps(nodes[0], length, 10_000) == 4000


def test_one_straggler_does_not_stretch_the_round() -> None:
    nodes = [Speed(0.1)] * 19 + [Speed(100.0)]
    length = round_seconds(nodes, 20)
    assert length == pytest.approx(2.0)
    assert local_steps(nodes[-1], length, 1000) == 1


def test_a_round_without_nodes_takes_zero_seconds() -> None:
    assert round_seconds([], 20) == 0.0


def test_a_node_that_waited_takes_up_to_twice_as_many_steps() -> None:
    waits = (0.0, 0.4, 1.2, 4.0, 100.0)
    assert [aligned_steps(5, 0.5, waited) for waited in waits] == [5, 5, 6, 9, 10]


def test_the_literal_rule_does_not_see_the_nodes_speed() -> None:
    assert literal_steps([0.1, 0.1, 0.2], 20, 1000) == literal_steps([10.0, 10.0, 20.0], 20, 1000) == 30
    assert literal_steps([], 20, 1000) == 20


def test_the_literal_rule_takes_no_more_than_the_time_for_computing() -> None:
    assert [literal_steps([1.0, 1.0, 2.0], 20, 1000, seconds) for seconds in (100.0, 20.0, -1.0)] == [30, 15, 1]
    assert literal_steps([5e-324, 1e300], 20, 7) == 7


@given(st.lists(speeds, min_size=1, max_size=30), st.integers(1, 100), st.integers(1, 10_000))
def test_steps_fill_the_round(nodes: list[Speed], reference: int, most: int) -> None:
    length = round_seconds(nodes, reference)
    for node in nodes:
        steps = local_steps(node, length, most)
        assert 1 <= steps <= most
        if steps > 1:  # one step fewer would leave the round unfilled
            assert (steps - 1) * node.step + node.exchange <= length * (1 + 1e-6)
        if 1 < steps < most:
            assert steps * node.step + node.exchange >= length * (1 - 1e-6)
            assert node.exchange <= length


@given(st.integers(1, 1000), st.integers(1, 1000), st.floats(0, 1000), st.floats(0.01, 4.0), st.booleans())
def test_rates_never_rise_with_staleness_or_steps(
    steps: int, reference: int, staleness: float, batch: float, adam: bool
) -> None:
    factor = rate_factor(steps, reference, staleness, batch, adam=adam)
    assert 0.1 <= factor <= 1.0
    assert rate_factor(steps + 1, reference, staleness, batch, adam=adam) <= factor
    assert rate_factor(steps, reference, staleness + 1.0, batch, adam=adam) <= factor
    assert rate_factor(reference, reference, 0.0, adam=adam) == 1.0


@given(st.floats(1e-3, 10.0), st.floats(0.1, 1000.0), st.lists(st.floats(0, 200.0), min_size=2, max_size=2))
def test_rates_never_rise_with_delay(step: float, length: float, exchanges: list[float]) -> None:
    """In a round of one length, a node that exchanges for longer takes fewer steps, and is not rewarded for it."""
    nodes = [Speed(step, exchange) for exchange in sorted(exchanges)]
    steps = [local_steps(node, length, 10_000) for node in nodes]
    assert steps[0] >= steps[1]
    factors = [
        rate_factor(own + hindered_steps(node, length, 10_000), 20, 0.0, adam=True)
        for own, node in zip(steps, nodes, strict=True)
    ]
    assert factors[0] >= factors[1]
