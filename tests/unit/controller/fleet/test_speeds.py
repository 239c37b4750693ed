"""The claims of a node change its own work alone."""

from __future__ import annotations

import math

import pytest

from barnraise.controller.fleet import speeds
from barnraise.controller.fleet.speeds import Speeds
from barnraise.controller.state import events as ev
from barnraise.core.types import FASTEST, SLOWEST, LinkReport, NodeProfile
from barnraise.ledger.decisions import Assigned, VersionClosed
from barnraise.staleness import create as staleness
from barnraise.wire.messages import RequestTask

from ....state_machine.engine import Engine, contribution, engine_settings

HONEST = {"ann": 100.0, "bob": 200.0}


def told(
    pace: str, *, claim: float | None = None, link: LinkReport | None = None, seconds: float = 0.0
) -> tuple[dict[str, tuple[float, ...]], float, int]:
    """Return the next tasks of honest nodes, the weight of the first result, and K, beside an idle node.

    The idle node claims the speed `claim` (None: nothing), asked for a task `seconds` before, and sends heartbeats.
    """
    settings = engine_settings(
        pace=pace, max_local_steps=1000, tokens=10**6, staleness=staleness("adaptive", max_staleness=50)
    )
    engine = Engine(settings)
    for node in HONEST:
        engine.hello(node)
    engine.observed(**HONEST)
    if claim is not None:
        engine.hello("idle", profile=NodeProfile(claim, up_bytes_per_second=claim, latency_seconds=3000.0))
        engine.handle(ev.Received("idle", RequestTask(0, link or LinkReport())))
    for _ in range(int(seconds)):
        engine.tick(1.0)
        for node in engine.state.nodes:
            engine.heartbeat(node)
    for node in HONEST:
        engine.next(node)
    tasks = {d.node: d for d in engine.journal if isinstance(d, Assigned) and d.node in HONEST}
    (task,) = engine.held["ann"].values()
    engine.offer("ann", contribution(task))
    for job in list(engine.jobs):
        engine.answer(job)
    (weight,) = [d.rate for d in engine.journal if isinstance(d, VersionClosed)]
    work = {node: (d.local_steps, d.terms.learning_rate, d.terms.max_staleness) for node, d in tasks.items()}
    return work, weight, engine.state.buffer.size


@pytest.mark.parametrize("pace", ["fixed", "matched"])
def test_a_claim_counts_as_an_honest_nodes_within_what_was_seen(pace: str) -> None:
    lowest, highest = (told(pace, claim=rate) for rate in (100.0, 200.0))
    assert [told(pace, claim=claim) for claim in (1e-3, 1.0)] == [lowest] * 2
    assert [told(pace, claim=claim) for claim in (1e6, 1e12, 1e15)] == [highest] * 3


@pytest.mark.parametrize("pace", ["fixed", "matched"])
@pytest.mark.parametrize("claim", [0.0, 5e-324, 1.0, 1e15])
def test_a_node_that_only_lives_is_not_counted_on_for_long(pace: str, claim: float) -> None:
    assert told(pace, claim=claim, seconds=60.0) == told(pace, seconds=60.0)


@pytest.mark.parametrize(
    "link", [LinkReport(1e12, 5e-324, 5e-324), LinkReport(1e12, 1e15, 1e15), LinkReport(0.1, 1.0, 1.0)]
)
def test_a_link_that_is_claimed_moves_no_rounds(link: LinkReport) -> None:
    assert told("matched", claim=100.0, link=link) == told("matched", claim=100.0)


def work(engine: Engine, *nodes: str, rounds: int) -> None:
    """Let each of `nodes` submit a task a second; all other nodes send heartbeats."""
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
def test_a_node_that_only_sends_heartbeats_does_not_delay_versions(claim: float, pinned: int | None) -> None:
    engine = fleet(buffer_size=pinned)
    engine.hello("idle", profile=NodeProfile(claim))
    work(engine, "a", "b", rounds=int(speeds.LEAST_PATIENCE) + 5)  # for so long it might still come to something
    version, accepted = engine.state.newest.version, engine.state.totals.accepted
    work(engine, "a", "b", rounds=10)
    assert engine.state.nodes["idle"].live
    assert engine.state.totals.accepted == accepted + 20
    assert engine.state.newest.version >= version + 10
    assert engine.state.buffer.size <= 2


def test_an_open_buffer_does_not_wait_for_ever_for_a_node_that_has_taken_a_task_and_hangs() -> None:
    engine = fleet(buffer_size=2)
    engine.next("b")
    version = engine.state.newest.version
    work(engine, "a", rounds=2 * int(speeds.LEAST_PATIENCE))
    assert engine.state.newest.version > version + speeds.LEAST_PATIENCE / 2
    closed = [d for d in engine.journal if isinstance(d, VersionClosed)]
    assert closed[-1].num_nodes == 1


@pytest.mark.parametrize("claim", [SLOWEST, 1.0, 1e6, FASTEST])
def test_a_claim_moves_others_no_more_than_what_was_seen_would(claim: float) -> None:
    engine = fleet()
    engine.hello("new", profile=NodeProfile(claim))
    engine.next("new")
    work(engine, rounds=math.ceil(speeds.LEAST_PATIENCE / 2))  # figures are computed again when a while has passed
    nodes, found = engine.state.nodes, engine.machine.parts[Speeds]
    assert found.usable(nodes["new"]) == pytest.approx(12.0)
    assert found.median == pytest.approx(12.0)
    assert found.participation(nodes["a"]) == pytest.approx(1 / 3)
    assert found.relative(nodes["a"]) == pytest.approx(1.0)
