"""How workers and their machines do: told about once a minute, kept as seldom, and used by no decision."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

import msgspec
import psutil
import pytest

from barnraise.account.story import _noted
from barnraise.controller.state import events as ev
from barnraise.controller.state.settings import ProtectionSettings
from barnraise.controller.work.utilisation import Utilisation
from barnraise.core.errors import WireError
from barnraise.core.types import FASTEST, LinkReport, Load, Telemetry
from barnraise.ledger.decisions import Noted
from barnraise.ledger.notes import FIGURES, Advice, Employed, Matched, Sampled, note_of
from barnraise.wire.frames import decode_from_worker, encode
from barnraise.wire.messages import Decline, Heartbeat
from barnraise.worker import telemetry
from barnraise.worker.events import Event, Measured

from ....state_machine.engine import Engine, contribution, engine_settings
from ...worker.test_machine import ready

SAID = Telemetry(Load(0.5, None, 1 << 30, 0, 0.75), LinkReport(0.02, 1e6, 2e6), 1234.0, 0.5)


def sampled(engine: Engine) -> list[tuple[str, Sampled]]:
    return [(d.node, d.note) for d in engine.journal if isinstance(d, Noted) and isinstance(d.note, Sampled)]


def test_a_worker_tells_what_was_measured_with_a_heartbeat() -> None:
    bench = ready()
    bench.handle(Measured(SAID.load, 1.25))
    told = bench.sent[-1]
    assert isinstance(told, Heartbeat)
    assert told.telemetry is not None
    assert told.telemetry.load == SAID.load
    assert told.telemetry.overhead == 1.25
    assert told.telemetry.link == bench.worker.contact.link


def test_a_heartbeat_that_tells_nothing_is_as_it_was() -> None:
    assert b"telemetry" not in bytes(encode(Heartbeat(1.0))[0])
    frames = encode(Heartbeat(1.0, SAID))
    assert decode_from_worker([bytes(frame) for frame in frames])[0] == Heartbeat(1.0, SAID)


@pytest.mark.parametrize(
    "load",
    [{"cpu": 1.5}, {"cpu": math.nan}, {"gpu": -0.1}, {"memory_bytes": -1}, {"average": 1e300}, {"cpu": "much"}, []],
)
def test_impossible_telemetry_is_refused(load: object) -> None:
    frame = msgspec.msgpack.encode({"t": "Heartbeat", "sent": 1.0, "telemetry": {"load": load}})
    with pytest.raises(WireError):
        decode_from_worker([frame])


@pytest.mark.parametrize("alpha", [-0.1, 1e4, math.nan, math.inf, "much"])
def test_an_impossible_cost_of_protections_is_refused(alpha: object) -> None:
    frame = msgspec.msgpack.encode({"t": "Heartbeat", "sent": 1.0, "telemetry": {"overhead": alpha}})
    with pytest.raises(WireError):
        decode_from_worker([frame])


def test_rates_that_cannot_be_are_held_within_limits() -> None:
    assert Telemetry(tokens_per_second=1e15).tokens_per_second == FASTEST
    assert Telemetry(tokens_per_second=1e-300).tokens_per_second == 0.0


def test_a_node_has_a_row_a_minute_at_most_and_nothing_else_follows() -> None:
    silent, told = (Engine(engine_settings(tokens=10**9)) for _ in range(2))
    for engine in (silent, told):
        engine.hello("a")
        engine.next("a")
        for _ in range(150):
            engine.tick(1.0)
            engine.handle(ev.Received("a", Heartbeat(engine.now, SAID if engine is told else None)))
            if engine.held["a"] and int(engine.now) % 5 == 0:
                engine.offer("a", contribution(next(iter(engine.held["a"].values()))))
                for job in list(engine.jobs):
                    engine.answer(job)
                engine.next("a")
    rows = sampled(told)
    assert [node for node, _ in rows] == ["a"] * 3
    assert rows[-1][1].said["cpu"] == 0.5
    assert "gpu" not in rows[-1][1].said
    assert rows[-1][1].tokens_per_second > 0.0
    assert [d for d in told.journal if not (isinstance(d, Noted) and isinstance(d.note, Sampled))] == silent.journal


def test_availability_is_presence() -> None:
    engine = Engine(engine_settings(tokens=10**9))
    for there in (True, False, False, True):
        if there:
            engine.hello("a", restart=True)
        for _ in range(10):
            engine.tick(1.0)
            if there:
                engine.heartbeat("a")
        if there and engine.now < 20.0:
            engine.leave("a")
    engine.handle(ev.Received("a", Heartbeat(0.0, SAID)))
    assert sampled(engine)[-1][1].availability == pytest.approx(0.5)


def test_idle_time_and_conflicts_are_told_once_a_minute() -> None:
    engine = Engine(engine_settings(tokens=10**9))
    engine.hello("a")
    engine.tick(5.0)
    engine.next("a")
    (task,) = engine.held["a"].values()
    engine.tick(5.0)
    engine.handle(ev.Received("a", Decline(task.id, "no room")))
    tally = engine.machine.parts[Utilisation].until(engine.now)
    assert (tally.offers, tally.refused) == (1, 1)
    assert tally.idle == pytest.approx(0.5)
    for _ in range(115):
        engine.tick(1.0)
        engine.heartbeat("a")
        engine.handle(ev.Tick())
    told = [d.note for d in engine.journal if isinstance(d, Noted) and isinstance(d.note, Employed)]
    assert len(told) == 2
    assert told[-1].conflicts == 1.0


def test_figures_are_no_news_and_old_rows_are_read() -> None:
    assert {"traffic", "matched", "employed", "sampled"} <= set(FIGURES)
    old = {"nodes": 3, "tasks": 3, "events": 9, "moves": 1, "stability": 1.0, "nearly": 1.0, "blocking": 0.0}
    assert note_of("matched", old) == Matched(**old, regret=0.0, rematches=0, priced=-1.0)


def test_the_story_separates_measured_from_claimed_figures() -> None:
    note = Sampled(1500.0, 0.12, 1e6, 0.98, {"cpu": 0.5, "memory_bytes": 1e9, "unheard": 1.0})
    told = _noted(Noted(60.0, note, "a"), 0)
    assert told.startswith("a: here 98.0% of the time, computes 1,500 tokens/s (give or take 12%)")
    assert "it says: CPU 50%" in told


def test_the_load_of_this_process() -> None:
    load = telemetry.load_of(psutil.Process(), "cpu")
    assert 0.0 <= load.cpu <= 1.0
    assert load.memory_bytes > 1 << 20
    assert load.gpu is None


def test_the_load_is_looked_at_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "FIRST", 0.001)
    monkeypatch.setattr(telemetry, "INTERVAL", 0.001)

    async def three() -> list[Event]:
        queue: asyncio.Queue[Event] = asyncio.Queue()
        watching = asyncio.ensure_future(telemetry.watch("cpu", queue.put_nowait))
        found = [await queue.get() for _ in range(3)]
        watching.cancel()
        return found

    assert all(isinstance(event, Measured) for event in asyncio.run(three()))


def costed(limit: float) -> Engine:
    settings = engine_settings(tokens=10**9)
    payloads = replace(settings.payloads, protection=ProtectionSettings(overhead_limit=limit))
    made = Engine(replace(settings, payloads=payloads))
    for node in "abc":
        made.hello(node)
    return made


def report(there: Engine, **alphas: float) -> None:
    """Let a minute pass, then nodes report their alphas."""
    for _ in range(61):
        there.tick(1.0)
        for node in "abc":
            there.heartbeat(node)
    for node, alpha in alphas.items():
        there.handle(ev.Received(node, Heartbeat(there.now, Telemetry(overhead=alpha))))


def advice(there: Engine) -> list[str]:
    return [d.note.reason for d in there.journal if isinstance(d, Noted) and isinstance(d.note, Advice)]


def test_the_host_is_told_of_the_median_once_above_each_bound() -> None:
    there = costed(1.5)
    report(there, a=1.1, b=1.1, c=900.0)
    assert advice(there) == []
    report(there, a=1.3, b=1.3)
    assert len(advice(there)) == 1
    assert "1.30 times as long" in advice(there)[0]
    assert "above 1.2" in advice(there)[0]
    report(there, a=1.7, b=1.6)
    report(there, a=1.7, b=1.8)
    assert len(advice(there)) == 2
    assert "above 1.5" in advice(there)[1]
    assert "training.local_steps" in advice(there)[1]


def test_a_node_that_left_counts_no_more() -> None:
    there = costed(1.5)
    report(there, a=1.0, b=1.0, c=1.4)
    there.leave("a")
    there.leave("b")
    there.handle(ev.Received("c", Heartbeat(there.now, Telemetry(overhead=1.4))))
    assert advice(there) == []
    report(there, c=1.4)
    assert len(advice(there)) == 1


@pytest.mark.parametrize("alpha", [0.0, 900.0])
def test_reports_of_a_run_without_protections_are_noted_alone(alpha: float) -> None:
    there = costed(0.0)
    report(there, a=alpha, b=alpha)
    assert advice(there) == []
    said = [d.note.said for d in there.journal if isinstance(d, Noted) and isinstance(d.note, Sampled)]
    assert [row.get("overhead", 0.0) for row in said] == [alpha, alpha]
