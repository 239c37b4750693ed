"""The records of nodes and what the fleet says of them: who may work, until when not, and what is kept of whom."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator

import msgspec
import pytest

from barnraise.controller.fleet import records
from barnraise.controller.fleet.fleet import Fleet
from barnraise.controller.fleet.records import NodeRecords
from barnraise.controller.machine import HOLDS, Controller
from barnraise.controller.state import actions as act
from barnraise.controller.state import events as ev
from barnraise.controller.state.fold import MOST_OPEN
from barnraise.controller.state.state import State
from barnraise.core.token_bucket import LEAST_SWEPT, TokenBucket
from barnraise.core.types import KINDS, LinkReport, Load, NodeProfile, Telemetry
from barnraise.ledger.decisions import Change, Noted
from barnraise.ledger.notes import HeldOff
from barnraise.trust.reputation import Reputation
from barnraise.wire.messages import (
    PROTOCOL_VERSION,
    Assign,
    Decline,
    Heartbeat,
    Hello,
    Message,
    RequestTask,
    Subscribe,
)

from ....state_machine.engine import Engine, digest, engine_settings


def fleet(*nodes: str, **settings: object) -> Engine:
    engine = Engine(engine_settings(**settings))  # type: ignore[arg-type]
    for node in nodes:
        engine.hello(node)
    return engine


def reason(engine: Engine, node: str) -> str:
    hold = engine.machine.parts[Fleet].available(node)
    return "" if hold is None else hold.reason


def flap(engine: Engine, node: str, times: int) -> None:
    for _ in range(times):
        engine.handle(ev.Lost(node, "killed by signal 9", Change.KILLED))
        engine.hello(node, restart=True)


def notes(engine: Engine) -> list[tuple[str, HeldOff]]:
    return [(d.node, d.note) for d in engine.journal if isinstance(d, Noted) and isinstance(d.note, HeldOff)]


def test_a_node_that_may_work_is_available() -> None:
    engine = fleet("a")
    assert engine.machine.parts[Fleet].available("a") is None
    assert engine.machine.snapshot(engine.now).holds == {}


def test_a_node_that_left_is_not_available() -> None:
    engine = fleet("a", "b")
    engine.leave("a")
    assert reason(engine, "a") == "it does not take part"
    assert engine.machine.snapshot(engine.now).holds == {}, "a snapshot tells of nodes that take part"


def test_each_hold_has_a_reason_and_an_end() -> None:
    engine = fleet("a", "b", "c", "d")
    flap(engine, "b", 6)
    until = engine.now + 600.0
    for state in (engine.state, engine.shadow):
        state.nodes["c"].tally.reputation = Reputation(1, until)
        state.nodes["d"].open = list(range(MOST_OPEN))
    holds = engine.machine.snapshot(engine.now).holds
    assert holds.keys() == {"b", "c", "d"}
    assert "came back 6 times" in holds["b"].reason
    assert engine.now < holds["b"].until < math.inf
    assert (holds["c"].until, holds["c"].reason) == (until, "the controller found its results wrong")
    assert (holds["d"].until, holds["d"].until_heard) == (math.inf, False)
    assert f"{MOST_OPEN} tasks open" in holds["d"].reason


def test_a_silent_node_is_held_until_it_is_heard() -> None:
    engine = fleet("a")
    engine.next("a", 0, LinkReport(0.01))
    holds = engine.machine.snapshot(engine.now + 4.0).holds
    assert holds["a"].until_heard
    assert holds["a"].reason.startswith("silent for 4.")
    assert reason(engine, "a") == "", "at the time of the newest event it was not silent yet"


def test_a_node_whose_work_comes_to_nothing_waits() -> None:
    engine = fleet("a")
    for _ in range(20):
        engine.next("a")
        number = engine.held["a"].popitem()[0]
        engine.handle(ev.Received("a", Decline(number, "no room")))
    assert reason(engine, "a") == "gave back or got refused too many tasks lately"


def test_asking_what_holds_a_node_changes_nothing() -> None:
    engine = fleet("a", "b")
    flap(engine, "a", 6)
    engine.next("a")
    for hold in (engine.machine.parts[part].hold for part in HOLDS):
        for node in ("a", "b"):
            before = msgspec.json.encode(engine.state), repr(engine.machine.parts[NodeRecords][node])
            for time in (engine.now, engine.now + 3.0, engine.now + 1e6):
                hold(engine.state.nodes[node], time)
            assert (msgspec.json.encode(engine.state), repr(engine.machine.parts[NodeRecords][node])) == before


def test_a_long_hold_is_noted_once_a_session_and_minute() -> None:
    engine = fleet("a", "b")
    flap(engine, "a", 8)
    for _ in range(10):
        engine.next("a")
    ((node, note),) = notes(engine)
    assert node == "a"
    assert note.seconds == pytest.approx(160.0)
    engine.now += 61.0
    for name in ("a", "b"):
        engine.heartbeat(name)
    engine.next("a")
    assert [told.seconds for _, told in notes(engine)] == pytest.approx([160.0, 99.0], abs=0.5)


# Memory


OURS = ("barnraise.controller", "barnraise.core.token_bucket", "barnraise.matching")


def size(value: object, seen: set[int]) -> int:
    """Return the bytes of a value and all that it alone refers to, as far as records, containers and numbers go."""
    if id(value) in seen:
        return 0
    seen.add(id(value))
    inner: Iterator[object] = iter(())
    if isinstance(value, msgspec.Struct):
        inner = (getattr(value, name) for name in value.__struct_fields__)
    elif isinstance(value, dict):
        inner = (part for pair in value.items() for part in pair)
    elif isinstance(value, list | tuple | set | frozenset):
        inner = iter(value)
    elif hasattr(value, "__dict__") and type(value).__module__.startswith(OURS):
        inner = iter(vars(value).values())
    return sys.getsizeof(value) + sum(size(part, seen) for part in inner)


def observed(machine: Controller) -> int:
    """Bytes of what the parts have observed: all that they hold but the ledger's state and the settings."""
    shared = {id(machine.context), id(machine.state), id(machine.settings), id(machine.parts)}
    return sum(size(part, shared) for part in machine.parts)


def test_records_of_departed_nodes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """4,000 nodes come and go, some of which work: as much is kept after the last 2,000 as after the first."""
    monkeypatch.setattr(records, "MOST_GONE", 128)
    machine, sizes = Controller(engine_settings(), State()), []
    machine.start(digest(0), 0.0)
    for number in range(4_000):
        pass_through(machine, f"guest-{number}", number / 2, works=number % 10 == 0)
        if machine.deadline <= number / 2:
            machine.handle(ev.Tick(), number / 2)
        if number % 2000 == 1999:
            assert len(machine.parts[NodeRecords]) <= 128 + 1
            sizes.append(observed(machine))
    assert sizes[1] < 1.2 * sizes[0], "once more the first would be twice as much"


def pass_through(machine: Controller, node: str, now: float, works: bool) -> None:
    """A node comes and is lost. One that `works` reports its machine, gives a task back, takes another, and is back."""

    def say(message: Message) -> list[act.Action]:
        return machine.handle(ev.Received(node, message), now)

    machine.handle(ev.Admitted(node, f"key of {node}"), now)
    for session in (1, 2) if works else (1,):
        say(Hello(PROTOCOL_VERSION, session, 1, NodeProfile(100.0), 0, kinds=tuple(KINDS), lent=3600.0))
        if works:
            say(Heartbeat(0.0, Telemetry(Load(memory_bytes=1 << 30), LinkReport(0.01, 1e6, 1e6))))
            say(Subscribe(0))
            given = say(RequestTask(0, LinkReport(0.01, 1e6, 1e6)))
            (task,) = (
                one.message.task for one in given if isinstance(one, act.Send) and isinstance(one.message, Assign)
            )
            say(Decline(task.id, "no room"))
            say(RequestTask(0, LinkReport(0.01, 1e6, 1e6)))
        machine.handle(ev.Lost(node, "killed by signal 9", Change.KILLED), now)


def test_full_token_buckets_are_dropped() -> None:
    buckets = TokenBucket(burst=2.0, rate=1.0)
    for number in range(10 * LEAST_SWEPT):
        assert buckets.take(f"node-{number}", float(number))
    assert len(buckets._full) <= LEAST_SWEPT + 1
    last = f"node-{10 * LEAST_SWEPT - 1}"
    now = 10.0 * LEAST_SWEPT - 1.0
    assert [buckets.take(last, now) for _ in range(2)] == [True, False], "a bucket that is not full is kept"
