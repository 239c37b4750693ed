"""How long an open buffer waits for what it lacks: by what its nodes were seen to take."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnraise.controller.fleet.speeds import Speeds
from barnraise.controller.state import events as ev
from barnraise.controller.state.state import Speed, Work
from barnraise.controller.versions.arrivals import DEVIATIONS, LEAST_SECONDS, LEAST_SHARE, Arrivals
from barnraise.controller.versions.buffer import LATE, Buffer
from barnraise.core.types import NodeProfile
from barnraise.ledger.decisions import VersionClosed
from barnraise.wire.messages import Offer

from ....state_machine.engine import Engine, answer_to, engine_settings
from ..work.test_speculation import begin, made, rounds, settle, turn


def steady(seconds: float = 2.0, nodes: str = "abcd", **changes: object) -> Engine:
    """An asynchronous run whose nodes all took so long for each of five tasks, K being all of them."""
    engine = Engine(engine_settings(tokens=10**6, buffer_size=len(nodes), **changes))
    for node in nodes:
        engine.hello(node)
    settle(engine)
    for _ in range(5):
        begin(engine, *nodes)
        turn(engine, seconds, *nodes)
    engine.since = len(engine.journal)  # type: ignore[attr-defined]
    begin(engine, *nodes)
    return engine


def closed(engine: Engine) -> list[tuple[int, str]]:
    return [(d.num_nodes, d.reason) for d in made(engine, VersionClosed)]


def test_a_full_buffer_is_not_held_by_one_that_hangs() -> None:
    """Two seconds a task, so one more after those; it keeps its lease all the time."""
    engine = steady()
    turn(engine, 2.0, "a", "b", "c")
    turn(engine, LEAST_SECONDS - 0.01)
    assert closed(engine) == []
    turn(engine, 0.02)
    assert closed(engine) == [(3, LATE)]
    assert engine.state.nodes["d"].live


def test_the_next_ones_do_not_wait_for_it_either() -> None:
    engine = steady()
    turn(engine, 2.0, "a", "b", "c")
    turn(engine, 1.1)
    settle(engine)
    for _ in range(3):
        begin(engine, "a", "b", "c")
        turn(engine, 2.0, "a", "b", "c")
        turn(engine, LEAST_SECONDS)  # in which a fourth could have come
    assert closed(engine) == [(3, LATE)] * 3 + [(3, "full")]  # it is not counted on any more


def test_a_node_that_is_already_late_does_not_shorten_the_wait_for_others() -> None:
    """K is 4 of 6: two are late, so the four others are waited for."""
    engine = steady(4.0, nodes="abcdef")
    turn(engine, 4.0, "a", "b", "c", "d")
    turn(engine, 2.1)
    settle(engine)
    engine.since = len(engine.journal)  # type: ignore[attr-defined]
    begin(engine, "a", "b", "c", "d")
    engine.machine.parts[Buffer].versions = replace(engine.machine.parts[Buffer].versions, buffer_size=4)
    turn(engine, 4.0, "a", "b")
    turn(engine, 1.5, "c", "d")
    assert closed(engine) == [(4, "full")]


def test_a_slow_node_has_the_time_that_it_always_takes() -> None:
    engine = rounds(a=1.0, b=1.0, slow=12.0)
    begin(engine, "a", "b", "slow")
    turn(engine, 1.0, "a", "b")
    turn(engine, 16.0)
    assert closed(engine) == []
    turn(engine, 0.5, "slow")
    assert closed(engine) == [(3, "all")]


def test_a_round_does_not_wait_for_a_node_that_is_later_than_before() -> None:
    engine = rounds(a=4.0, b=4.0, c=4.0)
    begin(engine, "a", "b", "c")
    turn(engine, 4.0, "a", "b")
    turn(engine, 4.0 * LEAST_SHARE - 0.1)
    assert closed(engine) == []
    turn(engine, 0.2)
    assert closed(engine) == [(2, LATE)]


def test_the_rules_minimum_is_waited_for_however_late_it_is() -> None:
    engine = steady(minimum_nodes=4)
    turn(engine, 2.0, "a", "b", "c")
    turn(engine, 30.0)
    assert closed(engine) == []
    turn(engine, 0.1, "d")
    assert closed(engine) == [(4, "full")]


def test_an_upload_is_not_late_while_its_bytes_arrive() -> None:
    engine = steady()
    turn(engine, 2.0, "a", "b", "c")
    (task,) = engine.held["d"].values()
    engine.handle(ev.Received("d", Offer(answer_to(task))))
    for _ in range(5):
        engine.upload("d", task.id, 0.5)
        turn(engine, 0.9)
    assert closed(engine) == []
    turn(engine, LEAST_SECONDS)
    assert closed(engine) == [(3, LATE)]


@given(
    times=st.lists(st.floats(0.001, 1000.0), min_size=1, max_size=8),
    claimed=st.floats(0.0, 1e12),
    steps=st.integers(1, 100),
)
def test_a_result_is_expected_by_what_was_seen_alone(times: list[float], claimed: float, steps: int) -> None:
    engine = expecting
    node = engine.state.nodes["a"]
    node.speed = Speed(rate=1.0, tokens=12.0, seconds=1.0, step_seconds=times)
    node.session.profile = NodeProfile(claimed)
    work = Work(**{**_WORK, "local_steps": steps})
    found = engine.machine.parts[Arrivals].takes(node, work)
    assert steps * min(times) <= found.time <= steps * max(times) * (1 + 1e-9)
    assert found.time >= steps * times[-1] * (1 - 1e-9), "the last one took as long"
    assert found.margin >= max(LEAST_SECONDS, LEAST_SHARE * found.time)
    spread = steps * (max(times) - min(times))
    assert found.margin <= max(LEAST_SECONDS, LEAST_SHARE * found.time, DEVIATIONS * spread) * (1 + 1e-9)


expecting = steady(nodes="ab")
_WORK = {name: getattr(next(iter(expecting.state.works.values())), name) for name in Work.__struct_fields__}


def test_the_expected_arrival_of_a_new_node_is_unknown() -> None:
    """Then all others' times count, several times over; or nothing, where there are none."""
    engine = Engine(engine_settings(tokens=10**6))
    engine.hello("a", profile=NodeProfile(1e9))
    engine.next("a")
    (work,) = engine.state.works.values()
    assert engine.machine.parts[Arrivals].expected(work).late == math.inf
    turn(engine, 5.0, "a")
    engine.next("a")
    engine.hello("b", profile=NodeProfile(1e9))
    engine.next("b")
    engine.machine.parts[Speeds].at = -1
    engine.machine.parts[Speeds].refresh()
    new = next(work for work in engine.state.works.values() if work.node == "b")
    assert engine.machine.parts[Arrivals].expected(new).late == pytest.approx(engine.now + 15.0)
