"""The number of live nodes decides K, local steps, and how many attackers the rule withstands."""

from __future__ import annotations

import pytest

from barnraise.aggregation.limits import trim_minimum, trimmed_per_side
from barnraise.controller.fleet.speeds import Speeds
from barnraise.ledger.decisions import Assigned

from ...state_machine.engine import Engine, engine_settings
from .versions.test_arrivals import steady
from .work.test_speculation import begin, made, settle, turn


def test_k_follows_the_living_at_once_and_never_below_the_rules_minimum() -> None:
    engine = steady(nodes="abcdefgh", minimum_nodes=3)
    assert engine.state.buffer.size == 8
    for count, node in zip((7, 6, 5, 4, 3, 3), "abcdef", strict=True):
        engine.leave(node)
        assert engine.state.buffer.size == count
    assert engine.state.progress.paused
    for count, node in zip((3, 4, 5), "abc", strict=True):
        engine.hello(node, restart=True)
        engine.machine.parts[Speeds].at = -1
        engine.tick(0.01)
        engine.next(node)
        assert engine.state.buffer.size == count
    assert not engine.state.progress.paused


def test_local_steps_are_for_the_slowest_that_is_there() -> None:
    """All nodes finish with the slowest: once that is gone no node waits for it."""
    engine = Engine(engine_settings(tokens=10**6, pace="matched", buffer_size=1))
    for node in "ab":
        engine.hello(node)
    settle(engine)
    engine.observed(a=120.0, b=12.0)

    def next_steps() -> int:
        engine.machine.parts[Speeds].at = -1
        begin(engine, "a")
        steps: int = made(engine, Assigned)[-1].local_steps
        turn(engine, 0.1, "a")
        engine.observed(a=120.0)
        return steps

    assert next_steps() == 20  # ten times as many as the slow one's
    engine.leave("b")
    assert next_steps() == 2
    engine.hello("b", restart=True)
    engine.observed(b=12.0)
    assert next_steps() == 20


@pytest.mark.parametrize(("nodes", "dropped"), [(12, 3), (8, 2), (5, 1), (4, 1)])
def test_a_share_of_attackers_is_a_share_of_the_present_nodes(nodes: int, dropped: int) -> None:
    options = {"f": None, "trim_ratio": 0.25}
    assert trimmed_per_side(options, nodes) == dropped
    assert nodes >= trim_minimum(options)
