"""Results that no honest machine submits, and repeated updates that cannot be accepted."""

from __future__ import annotations

from typing import Any

from barnraise.controller.state import effects
from barnraise.ledger import notes
from barnraise.ledger.decisions import Change, Judged, NodeChanged, Noted
from barnraise.trust.reputation import QUARANTINE

from ....state_machine.engine import Engine, contribution, engine_settings


def fleet(*names: str) -> Engine:
    engine = Engine(engine_settings(tokens=10**6, asynchronous=True, buffer_size=2))
    for name in names:
        engine.hello(name)
    return engine


def hand_in(engine: Engine, node: str, *, finite: bool = True, **changes: Any) -> bool:
    """The node's next result, with `changes`; whether it had a task."""
    if not engine.state.nodes[node].live:
        engine.hello(node, restart=True)
    engine.now += 0.5  # which a task takes
    engine.next(node)
    if not engine.held[node]:
        return False
    engine.offer(node, contribution(next(iter(engine.held[node].values())), **changes))
    while jobs := [job for job in engine.jobs if isinstance(job, effects.Inspect | effects.Aggregate)]:
        engine.answer(jobs[0], good=finite or not isinstance(jobs[0], effects.Inspect))
    return True


def told(engine: Engine, kind: type) -> list[tuple[str, Any]]:
    return [(d.node, d.note) for d in engine.journal if isinstance(d, Noted) and isinstance(d.note, kind)]


def sent_away(engine: Engine) -> list[str]:
    return [d.node for d in engine.journal if isinstance(d, NodeChanged) and d.change == Change.DISMISSED]


def test_ten_impossible_claims_quarantine_a_node_despite_valid_results_between() -> None:
    engine = fleet("a", "b", "c")
    for number in range(10):
        assert hand_in(engine, "a")
        assert not told(engine, notes.Offended)
        assert hand_in(engine, "a", steps=99)
        assert hand_in(engine, "b" if number % 2 else "c")
    ((node, note),) = told(engine, notes.Offended)
    assert (node, note.count) == ("a", 10)
    assert note.reason.startswith("claims 99 steps")
    assert engine.now < note.until <= engine.now + QUARANTINE
    assert sent_away(engine) == ["a"]
    assert not hand_in(engine, "a")
    engine.now = note.until + 1.0
    assert hand_in(engine, "a"), "it may try again after a while"
    assert engine.state.nodes["a"].tally.reputation.weight() < 0.5, "and counts little"


def test_the_third_offence_bans_a_node_permanently() -> None:
    engine = fleet("a", "b")
    for until in (600.0, 6000.0, None):
        for _ in range(10):
            assert hand_in(engine, "a", steps=99)
        note = told(engine, notes.Offended)[-1][1]
        if until is None:
            assert note.until is None
        else:
            assert note.until - engine.now == until
            engine.now = note.until + 1.0
            for name in ("a", "b"):
                engine.hello(name, restart=True)
    engine.now += 1e9
    assert not hand_in(engine, "a")


def test_stale_and_too_large_updates_are_no_offences() -> None:
    """A slow machine's work is stale, and a learning rate may be too high: the machine is as good as any."""
    engine = fleet("a", "b")
    for _ in range(9):
        assert hand_in(engine, "a", loss=1e9)
        assert hand_in(engine, "b", finite=False)
    for _ in range(9):
        assert hand_in(engine, "a", loss=1e9)
    refused = [d for d in engine.journal if isinstance(d, Judged) and d.verdict == "refused"]
    assert len(refused) == 27
    assert not told(engine, notes.Offended)
    assert not sent_away(engine)


def test_a_node_that_is_dismissed_repeatedly_is_held_off() -> None:
    """Where others can do the work."""
    engine = fleet("a", "b", "c")
    for _ in range(5):
        while hand_in(engine, "a", finite=False) and engine.state.nodes["a"].live:
            pass
        assert not told(engine, notes.HeldOff) or not hand_in(engine, "a")
        engine.now += 60.0  # the longest wait of a node whose tasks fail
        for name in ("b", "c"):
            engine.hello(name)
    assert not told(engine, notes.Offended)
    ((node, note),) = told(engine, notes.HeldOff)
    assert node == "a"
    engine.now += note.seconds + 1.0
    assert hand_in(engine, "a")
