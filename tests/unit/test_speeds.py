"""What nodes claim of themselves, and what that is allowed to move."""

from __future__ import annotations

import math

import pytest

from barnraise.controller import pacing, speeds
from barnraise.core.types import FASTEST, SLOWEST, NodeProfile
from barnraise.ledger.decisions import VersionClosed

from ..state_machine.engine import Engine, contribution, engine_settings


def work(engine: Engine, *nodes: str, rounds: int) -> None:
    """Each of `nodes` hands in a task a second; whoever else is there sends heartbeats."""
    for _ in range(rounds):
        for node in nodes:
            engine.next(node)
        engine.tick(1.0)
        for node in engine.state.nodes:
            engine.heartbeat(node)
        for node in nodes:
            if engine.held[node]:
                engine.offer(node, contribution(next(iter(engine.held[node].values()))))
        while engine.jobs:
            engine.answer(engine.jobs[0])


def fleet(**changes: object) -> Engine:
    """Two nodes that have shown what they do: 12 tokens a second."""
    engine = Engine(engine_settings(tokens=10**9, **changes))
    for node in ("a", "b"):
        engine.hello(node)
    work(engine, "a", "b", rounds=5)
    return engine


@pytest.mark.parametrize("claim", [0.0, SLOWEST, FASTEST])
@pytest.mark.parametrize("pinned", [None, 3])
def test_a_node_that_only_says_that_it_is_there_stops_nobody(claim: float, pinned: int | None) -> None:
    engine = fleet(buffer_size=pinned)
    engine.hello("idle", profile=NodeProfile(claim))
    work(engine, "a", "b", rounds=int(speeds.LEAST_PATIENCE) + 5)  # for so long it might still come to something
    version, accepted = engine.state.version, engine.state.accepted
    work(engine, "a", "b", rounds=10)
    assert engine.state.nodes["idle"].live
    assert engine.state.accepted == accepted + 20
    assert engine.state.version >= version + 10
    assert engine.state.buffer_size <= 2


def test_an_open_buffer_does_not_wait_for_ever_for_a_node_that_has_taken_a_task_and_hangs() -> None:
    engine = fleet(buffer_size=2)
    engine.next("b")
    version = engine.state.version
    work(engine, "a", rounds=2 * int(speeds.LEAST_PATIENCE))
    assert engine.state.version > version + speeds.LEAST_PATIENCE / 2
    closed = [d for d in engine.journal if isinstance(d, VersionClosed)]
    assert closed[-1].num_nodes == 1


@pytest.mark.parametrize("claim", [SLOWEST, 1.0, 1e6, FASTEST])
def test_a_claim_moves_others_no_more_than_what_was_seen_would(claim: float) -> None:
    engine = fleet()
    engine.hello("new", profile=NodeProfile(claim))
    engine.next("new")
    work(engine, rounds=math.ceil(speeds.LEAST_PATIENCE / 2))  # figures are found anew when a while has passed
    state, soft = engine.state, engine.machine.soft
    assert speeds.usable(state, soft, state.nodes["new"]) == pytest.approx(12.0)
    assert soft.speeds.median == pytest.approx(12.0)
    assert pacing.participation(state, soft, state.nodes["a"]) == pytest.approx(1 / 3)
    assert speeds.relative(state, soft, state.nodes["a"]) == pytest.approx(1.0)
