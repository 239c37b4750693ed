"""The sentence that says why a working run makes no version."""

from __future__ import annotations

import math

import pytest

from barnraise.account.waiting import waiting_for
from barnraise.controller.state.fold import apply
from barnraise.controller.state.part import TaskHold
from barnraise.controller.state.state import State
from barnraise.ledger import Decision, NodeChanged, Noted, VersionClosed, notes

from ...decisions import assigned, judged

START: list[Decision] = [Noted(0.0, notes.Started(digest="ab" * 32, run="r"))]
NODES: list[Decision] = [
    row
    for name in ("ann", "bob", "cid", "dan")
    for row in (NodeChanged(0.5, name, "enrolled", key=name), NodeChanged(1.0, name, "joined", session=1))
]
WORK: list[Decision] = [
    Noted(1.0, notes.BufferSize(3, 4, "the run file")),
    assigned(2.0, 1, "ann"),
    judged(6.0, 1, "ann"),
    assigned(7.0, 2, "bob"),
    assigned(9.0, 3, "cid"),
]


def folded(*decisions: Decision) -> State:
    state = State()
    for decision in [*START, *decisions]:
        apply(state, decision)
    return state


@pytest.mark.parametrize("now", [0.0, 1000.0])
def test_a_run_without_workers_waits_for_them(now: float) -> None:
    assert waiting_for(folded(), {}, now) == "waiting for workers"


def test_a_run_that_makes_versions_waits_for_nothing() -> None:
    assert waiting_for(folded(*NODES, *WORK), {}, 29.0) == ""


def test_the_nodes_that_a_version_lacks_are_named_with_what_they_do() -> None:
    held = {"dan": TaskHold(math.inf, "on probation \x1b[2J")}
    assert waiting_for(folded(*NODES, *WORK), held, 67.0) == (
        "no version for 1 min 7 s: version 1 waits for contributions of 2 more nodes; at work: bob for 1 min; "
        "cid for 58 s; without a task: dan, on probation [2J"
    )


def test_a_pause_by_the_host_is_no_time_without_a_version() -> None:
    pause = [Noted(10.0, notes.HostPaused()), Noted(60.0, notes.HostContinued())]
    assert waiting_for(folded(*NODES, *WORK, *pause), {}, 67.0) == ""
    assert waiting_for(folded(*NODES, *WORK, *pause), {}, 91.0).startswith("no version for 31 s")


def test_a_large_fleet_is_counted() -> None:
    held = {f"n{number}": TaskHold(math.inf, "silent") for number in range(9)}
    told = waiting_for(folded(*NODES, *WORK), held, 67.0)
    assert told.endswith("n3, silent; 5 others")


def test_a_version_that_takes_long_to_make_is_told() -> None:
    closed = VersionClosed(40.0, 1, (1,), 1, 400, "full")
    assert waiting_for(folded(*NODES, *WORK, closed), {}, 67.0) == "version 1 is being made, since 1 min 7 s"
