"""The effect of several nodes of one invite on honest nodes, by tiny updates or by claims, in the pure controller."""

from __future__ import annotations

import pytest

from barnraise.controller.state import effects
from barnraise.ledger.decisions import Change, Judged, NodeChanged
from barnraise.training.reach import Reach

from ...campaigns import sizes
from ...state_machine.engine import Engine, contribution, engine_settings
from ...state_machine.sybils import WAYS, outcome

TINY, USUAL = 1e-9, 0.5


def fleet() -> Engine:
    return Engine(engine_settings(tokens=10**9, local_steps=2, learning_rate=0.1, reach=Reach(10.0)))


def hand_in(engine: Engine, node: str, norm: float) -> None:
    """Submit the node's next update, of this L2 norm."""
    if not engine.state.nodes[node].live:
        return
    engine.now += 0.1
    engine.next(node)
    engine.offer(node, contribution(next(iter(engine.held[node].values()))))
    while jobs := [job for job in engine.jobs if isinstance(job, effects.Inspect | effects.Aggregate)]:
        if isinstance(jobs[0], effects.Inspect):
            engine.jobs.remove(jobs[0])
            engine.handle(effects.Inspected(engine.epoch, jobs[0].result.assignment, norm))
        else:
            engine.answer(jobs[0])


def judged(engine: Engine, nodes: list[str]) -> list[Judged]:
    return [d for d in engine.journal if isinstance(d, Judged) and d.node in nodes]


@pytest.mark.parametrize("num_honest", [4, 7, 30])
def test_nodes_that_are_there_first_with_tiny_updates_have_no_honest_one_refused(num_honest: int) -> None:
    """As nothing that a node is judged by comes from other nodes."""
    engine, sybils = fleet(), ["s0", "s1", "s2"]
    honest = [f"h{number}" for number in range(num_honest)]
    for node in sybils:
        engine.hello(node)
    for _ in range(3):
        for node in sybils:
            hand_in(engine, node, TINY)
    for node in honest:
        engine.hello(node)
    for _ in range(12):
        for node in (*honest, *sybils):
            hand_in(engine, node, USUAL if node in honest else TINY)
    found = judged(engine, honest)
    assert len(found) == 12 * num_honest
    assert {(d.verdict, d.weighing.scale) for d in found} == {("accepted", 1.0)}
    assert not [d for d in engine.journal if isinstance(d, NodeChanged) and d.change == Change.DISMISSED]


def test_a_long_update_is_shortened_and_never_refused_and_its_node_stays() -> None:
    engine = fleet()
    engine.hello("long")
    for _ in range(12):
        hand_in(engine, "long", 8.0)
    assert [(d.verdict, d.norm, d.weighing.scale) for d in judged(engine, ["long"])] == [("accepted", 8.0, 0.25)] * 12
    assert engine.state.nodes["long"].live


@pytest.mark.parametrize("owners", sizes(3, 1))
@pytest.mark.parametrize("way", [way for way in WAYS if way != "nobody"])
def test_three_nodes_of_ten_put_no_honest_one_out_and_cost_it_no_work(way: str, owners: int) -> None:
    found = outcome(way, owners)
    assert (found.refused, found.dismissed) == (0, 0)
    assert found.tokens >= 0.99 * outcome("nobody").tokens
    assert found.moved >= 0.5 / 10


@pytest.mark.parametrize("owners", sizes(3, 1))
def test_three_slow_nodes_of_ten_make_matched_rounds_at_most_four_times_as_long(owners: int) -> None:
    slow, alone = outcome("slow", owners, "matched"), outcome("nobody", pace="matched")
    assert slow.steps <= 4 * alone.steps
    assert slow.rate >= alone.rate / 2
    assert (slow.refused, slow.dismissed) == (0, 0)
