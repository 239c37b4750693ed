"""The rest of a run under virtual time: its warm-up, comings and goings, and its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from barnraise.assembly.simulated_work import costed
from barnraise.config import load
from barnraise.controller.machine import Controller
from barnraise.emulation.churn import ChurnEvent
from barnraise.emulation.rest import Rest
from barnraise.plan import Purpose, resolve
from barnraise.plan.estimate import estimate

from ...simulated_runs import RUN, fleet

WARM, LEFT = 200_000, 400_000
MACHINES = fleet((("ann", 4000.0, "good"), ("bob", 2000.0, "good"), ("cat", 2000.0, "good")))


def rest(present: Sequence[str], changes: Mapping[str, Sequence[ChurnEvent]] = {}, **options: Any) -> Rest:
    plan = resolve(load(RUN), purpose=Purpose.SIMULATE, nodes=len(MACHINES))
    settings, work, node_work, digest = costed(plan, estimate(plan))
    found = Rest(
        Controller(replace(settings, tokens=WARM + LEFT)),
        MACHINES,
        work,
        node_work,
        present=present,
        changes=changes,
        warm_tokens=WARM,
        warm_seconds=1000.0,
        seed=1,
        **options,
    )
    found.run(digest, 100_000.0)
    return found


def test_a_rest_leaves_out_the_start() -> None:
    found = rest(["ann", "bob", "cat"]).played()
    assert found is not None
    assert found.tokens > LEFT + WARM / 2  # each node has contributed twice long before WARM tokens
    assert found.seconds == pytest.approx(found.tokens / 8000.0, rel=0.1)
    assert 0.9 < found.tokens / found.work <= 1.1
    assert 0.0 <= found.tail < 30.0


def test_nodes_come_and_go_in_the_rest() -> None:
    usual, changed = (rest(["ann", "bob"], changes).played() for changes in ({}, CHANGES))
    assert usual is not None
    assert changed is not None
    # ann is away for 40 s; ann and cat prepare for 15 s
    expected = (changed.tokens + 55.0 * 4000.0 + 15.0 * 2000.0) / 8000.0
    assert changed.seconds == pytest.approx(expected, rel=0.15)
    assert usual.seconds == pytest.approx(usual.tokens / 6000.0, rel=0.1)


CHANGES = {
    "ann": (ChurnEvent(5.0, up=False), ChurnEvent(45.0, up=True)),
    "cat": (ChurnEvent(0.0, up=True),),
}


def test_a_rest_whose_nodes_all_leave_is_not_played_to_its_end() -> None:
    gone = {name: (ChurnEvent(5.0, up=False),) for name in ("ann", "bob")}
    found = rest(["ann", "bob"], gone)
    assert found.played() is None
    assert found.stopped


def test_a_rest_without_present_nodes_waits_for_the_first() -> None:
    found = rest([], {"ann": (ChurnEvent(50.0, up=True),)}).played()
    assert found is not None
    assert found.seconds > 50.0
    assert found.work == pytest.approx(4000.0 * (found.seconds - 50.0), rel=0.1)


def test_equal_seeds_play_equal_rests() -> None:
    first, second = (rest(["ann", "bob"], CHANGES) for _ in range(2))
    assert first.played() == second.played()
    assert first.ledger_hash.hexdigest() == second.ledger_hash.hexdigest()
