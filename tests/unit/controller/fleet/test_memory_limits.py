"""How much memory nodes have for rows: a claim, which what is seen of them makes smaller."""

from __future__ import annotations

from functools import partial

import pytest

from barnraise.controller.fleet.memory_limits import TIMES, MemoryLimits
from barnraise.controller.state import events as ev
from barnraise.controller.state.settings import RowNeeds
from barnraise.core.types import Load, NodeProfile, Telemetry
from barnraise.data.ranges import RowIndex
from barnraise.ledger.decisions import Change, Noted
from barnraise.ledger.notes import Advice
from barnraise.matching import create as scheduler
from barnraise.matching.base import LARGEST_AMOUNT
from barnraise.models.memory import PROCESS_BYTES
from barnraise.wire.messages import Decline, Heartbeat

from ....state_machine.engine import Engine, contribution, engine_settings

LONG, SHORT = 9, 3
CLAIM = 10**12


def engine_of(name: str = "gale_shapley") -> Engine:
    return Engine(
        engine_settings(
            rows=RowIndex([40] * 6, lengths=[SHORT, LONG] * 3),
            needs=RowNeeds(1, {SHORT: 100, LONG: 900}),
            tokens=10**9,
            lease=1000.0,
            scheduler=partial(scheduler, name),
        )
    )


def given(engine: Engine, node: str) -> int:
    """The length of the rows that the node gets as it asks."""
    engine.next(node)
    number = engine.state.totals.assigned
    work = engine.state.works[number]
    assert work.node == node, "it got nothing"
    return max(engine.settings.tasks.rows.lengths[rows.shard] for rows in work.rows)


def does(engine: Engine, node: str) -> None:
    """Let the node submit all its tasks."""
    for task in list(engine.held[node].values()):
        engine.offer(node, contribution(task))
        while engine.jobs:
            engine.answer(engine.jobs[0])


def breaks(engine: Engine, node: str, way: str = "restart") -> None:
    """Let the node fail at all its tasks, and return after a while."""
    if way == "decline":
        for number in list(engine.held[node]):
            engine.handle(ev.Received(node, Decline(number, "too long for me")))
            engine.held[node].pop(number)
    elif way == "killed":
        engine.handle(ev.Lost(node, "was killed by a signal", Change.KILLED))
    engine.tick(700.0)
    for one in engine.sessions:
        engine.heartbeat(one)
    engine.hello(node, restart=way != "decline", profile=NodeProfile(memory_bytes=CLAIM))


def goes_on(engine: Engine, node: str, way: str, rounds: int = 30) -> list[int]:
    """The lengths that it gets; it breaks on each of the long ones."""
    lengths = []
    for _ in range(rounds):
        lengths.append(given(engine, node))
        if lengths[-1] == LONG:
            breaks(engine, node, way)
        else:
            does(engine, node)
    return lengths


def advice(engine: Engine) -> list[tuple[str, str]]:
    return [(d.node, d.note.reason) for d in engine.journal if isinstance(d, Noted) and isinstance(d.note, Advice)]


@pytest.mark.parametrize("way", ["restart", "killed", "decline"])
@pytest.mark.parametrize("name", ["gale_shapley", "fifo"])
def test_a_node_that_breaks_on_long_rows_gets_shorter_ones_and_others_get_the_long_ones(name: str, way: str) -> None:
    engine = engine_of(name)
    engine.hello("liar", profile=NodeProfile(memory_bytes=CLAIM))
    assert goes_on(engine, "liar", way).count(LONG) == TIMES
    assert goes_on(engine, "liar", way).count(LONG) == 0
    (who, reason) = advice(engine)[0]
    assert (who, reason) == (
        "liar",
        f"broke {TIMES} times on rows that need 900 B of memory: it gets shorter ones from now on",
    )
    assert "and liar, the nearest, has 899 B" in advice(engine)[1][1]
    engine.hello("large", profile=NodeProfile(memory_bytes=1000))
    assert LONG in [given(engine, "large"), does(engine, "large"), given(engine, "large")]


@pytest.mark.parametrize("way", ["restart", "killed", "decline"])
def test_a_node_that_completed_long_rows_keeps_getting_them(way: str) -> None:
    engine = engine_of()
    engine.hello("worker", profile=NodeProfile(memory_bytes=CLAIM))
    while given(engine, "worker") != LONG:
        does(engine, "worker")
    does(engine, "worker")
    assert goes_on(engine, "worker", way).count(LONG) > 2 * TIMES
    assert advice(engine) == []


def test_breaking_on_the_shortest_rows_says_nothing_of_memory() -> None:
    engine = engine_of()
    engine.hello("worker", profile=NodeProfile(memory_bytes=500))
    for _ in range(2 * TIMES):
        assert given(engine, "worker") == SHORT
        breaks(engine, "worker", "decline")
    node = engine.state.nodes["worker"]
    assert engine.machine.parts[MemoryLimits].of(node) == node.session.profile.room


def test_rows_have_to_fit_into_an_accelerators_own_memory() -> None:
    engine = engine_of()
    engine.hello("small", profile=NodeProfile(memory_bytes=CLAIM, device="T4", accelerator_bytes=500))
    engine.hello("large", profile=NodeProfile(memory_bytes=500, device="H100", accelerator_bytes=CLAIM))
    engine.hello("unknown", profile=NodeProfile(memory_bytes=500, device="H100"))
    memory_limits = {name: engine.machine.parts[MemoryLimits].of(node) for name, node in engine.state.nodes.items()}
    assert memory_limits == {"small": 500, "large": CLAIM, "unknown": LARGEST_AMOUNT}
    for _ in range(10):
        assert given(engine, "small") == SHORT
        does(engine, "small")


def test_memory_that_a_process_holds_lowers_the_limit_for_rows() -> None:
    engine = engine_of()
    engine.hello("large", profile=NodeProfile(memory_bytes=1000))
    engine.hello("accelerated", profile=NodeProfile(memory_bytes=CLAIM, device="H100", accelerator_bytes=500))

    def room(holds: int) -> tuple[int, bool]:
        nodes = engine.state.nodes
        for name in nodes:
            engine.handle(ev.Received(name, Heartbeat(engine.now, Telemetry(Load(memory_bytes=holds)))))
        return engine.machine.parts[MemoryLimits].of(nodes["large"]), engine.machine.parts[MemoryLimits].of(
            nodes["accelerated"]
        ) == 500

    assert room(0) == (1000, True)
    assert room(PROCESS_BYTES + 1000) == (1000, True)
    assert room(PROCESS_BYTES + 1200) == (800, True)
    assert room(PROCESS_BYTES) == (800, True)  # it can only make it smaller
    assert room(10**15) == (100, True)  # every node may get the shortest rows
