"""What a node says of itself moves its own work alone."""

from __future__ import annotations

import pytest

from barnraise.controller import events as ev
from barnraise.core.types import LinkReport, NodeProfile
from barnraise.ledger.decisions import Assigned, VersionClosed
from barnraise.staleness import create as staleness
from barnraise.wire.messages import Next

from ..state_machine.engine import Engine, contribution, engine_settings

HONEST = {"ann": 100.0, "bob": 200.0}


def told(
    pace: str, *, claim: float | None = None, link: LinkReport | None = None, seconds: float = 0.0
) -> tuple[dict[str, tuple[float, ...]], float, int]:
    """What honest nodes are told to do next, what the first version of it weighs, and K; beside one that claims to be
    so fast (if it claims anything), asked for a task `seconds` before, and does nothing but live."""
    settings = engine_settings(
        pace=pace, max_local_steps=1000, tokens=10**6, staleness=staleness("adaptive", max_staleness=50)
    )
    engine = Engine(settings)
    for node in HONEST:
        engine.hello(node)
    engine.observed(**HONEST)
    if claim is not None:
        engine.hello("idle", profile=NodeProfile(claim, up_bytes_per_second=claim, latency_seconds=3000.0))
        engine.handle(ev.Received("idle", Next(0, link or LinkReport())))
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
    work = {node: (d.local_steps, d.learning_rate, d.max_staleness) for node, d in tasks.items()}
    return work, weight, engine.state.buffer_size


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
