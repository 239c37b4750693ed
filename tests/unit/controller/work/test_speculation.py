"""Work that is late and waited for is done twice: who gets a copy, which result counts, and that it counts once."""

from __future__ import annotations

from typing import Any

import pytest

from barnraise.controller.state import actions as act
from barnraise.controller.state import effects
from barnraise.controller.state import events as ev
from barnraise.controller.versions.evaluation import Evaluation
from barnraise.controller.work.dispatch import Dispatch
from barnraise.controller.work.speculation import MOST_COPIES, Speculation
from barnraise.core.types import NodeProfile
from barnraise.ledger.decisions import Assigned, Judged, Noted, VersionClosed
from barnraise.ledger.notes import COPY_CAME_FIRST, Copied
from barnraise.wire.messages import Ack, Offer

from ....state_machine.chances import MEASURED
from ....state_machine.engine import Engine, answer_to, engine_settings


def settle(engine: Engine) -> None:
    while engine.jobs and engine.finished is None:
        engine.answer(engine.jobs[0])


def turn(engine: Engine, seconds: float, *nodes: str) -> None:
    """Let `seconds` pass with heartbeats, then let `nodes` upload their results."""
    end = engine.now + seconds
    while engine.now < end - 1e-9:
        for node in engine.account.live:
            engine.heartbeat(node)
        engine.tick(min(0.5, end - engine.now))
    for node in nodes:
        for task in list(engine.held[node].values()):
            engine.offer(node, answer_to(task))
        settle(engine)


def rounds(**seconds: float) -> Engine:
    """Return synchronous rounds of nodes that take `seconds` for a task; the engine saw this in three rounds."""
    engine = Engine(engine_settings(asynchronous=False, tokens=10**6, sync_window=60.0, sync_longest_wait=100.0))
    for node in seconds:
        engine.hello(node)
    settle(engine)
    for _ in range(3):
        begin(engine, *seconds)
        before = 0.0
        for node, time in sorted(seconds.items(), key=lambda item: item[1]):
            turn(engine, time - before, node)
            before = time
    engine.since = len(engine.journal)  # type: ignore[attr-defined]
    return engine


def begin(engine: Engine, *nodes: str) -> None:
    for node in nodes:
        if not engine.held[node] and node not in engine.asked:
            engine.next(node)


def made(engine: Engine, kind: type) -> list[Any]:
    return [d for d in engine.journal[getattr(engine, "since", 0) :] if isinstance(d, kind)]


def speculation(engine: Engine) -> list[Copied]:
    return [d.note for d in made(engine, Noted) if isinstance(d.note, Copied)]


def late_round() -> Engine:
    """One of three fast nodes hangs while a slow node still works, so an idle node gets a copy."""
    engine = rounds(a=1.0, b=1.0, c=1.0, slow=10.0)
    begin(engine, "a", "b", "c", "slow")
    turn(engine, 1.0, "a", "b")
    engine.next("a")
    engine.next("b")
    assert not speculation(engine)
    turn(engine, 2.0)
    return engine


def test_an_idle_node_gets_a_copy_of_what_a_round_waits_for() -> None:
    engine = late_round()
    (note,) = speculation(engine)
    (original,) = engine.held["c"].values()
    copy = made(engine, Assigned)[-1]
    assert (note.assignment, note.by, copy.redo) == (original.id, copy.node, original.id)
    assert copy.node in ("a", "b")
    assert engine.state.totals.copies == 1
    cohort = engine.state.copies_of(engine.state.works[original.id])
    assert cohort is not None
    assert cohort is engine.state.copies_of(engine.state.works[copy.assignment])
    assert set(cohort.members) == {original.id, copy.assignment}


def test_the_first_result_wins_and_the_other_costs_nothing() -> None:
    engine = late_round()
    (original,) = engine.held["c"].values()
    copy = made(engine, Assigned)[-1]
    tokens = engine.state.totals.tokens
    turn(engine, 1.0, copy.node)
    assert engine.state.totals.tokens == tokens + original.tokens
    assert not any(engine.state.copies_of(work) for work in engine.state.works.values())
    released = made(engine, Noted)[-1]
    assert (released.node, released.note.reason) == ("c", COPY_CAME_FIRST)
    engine.held["c"][original.id] = original  # it has not heard of that yet
    actions = engine.handle(ev.Received("c", Offer(answer_to(original))))
    assert [a.message.accepted for a in actions if isinstance(a, act.Send) and isinstance(a.message, Ack)] == [False]
    assert engine.state.nodes["c"].tally.refused == 0
    turn(engine, 7.0, "slow")
    closed = made(engine, VersionClosed)[-1]
    assert (closed.num_nodes, len(closed.contributions), closed.reason) == (3, 4, "all")


def test_the_slower_of_two_copies_gets_no_new_task_in_the_round() -> None:
    """A whole task of it would hold all others up."""
    engine = late_round()
    copy = made(engine, Assigned)[-1]
    turn(engine, 1.0, copy.node)
    engine.next("c")
    assert "c" in engine.machine.parts[Dispatch].resting
    turn(engine, 7.0, "slow")
    assert made(engine, VersionClosed)[-1].reason == "all"
    assert made(engine, Assigned)[-1].node == "c", "but in the next one"


def test_the_original_may_win_as_well() -> None:
    engine = late_round()
    copy = made(engine, Assigned)[-1]
    turn(engine, 0.1, "c")
    assert not any(engine.state.copies_of(work) for work in engine.state.works.values())
    assert copy.assignment not in engine.state.works
    assert engine.state.nodes["c"].tally.accepted == 4


def test_the_copy_that_is_inspected_later_is_discarded() -> None:
    engine = late_round()
    (original,) = engine.held["c"].values()
    copy = made(engine, Assigned)[-1]
    engine.offer(copy.node, answer_to(engine.held[copy.node][copy.assignment]))
    engine.offer("c", answer_to(original))
    settle(engine)
    verdicts = {d.assignment: (d.verdict, d.reason) for d in made(engine, Judged)}
    assert verdicts[copy.assignment] == ("accepted", "")
    assert verdicts[original.id] == ("discarded", COPY_CAME_FIRST)
    assert not engine.state.redo
    assert engine.machine.parts[Dispatch].wasted.has("c", engine.now)
    assert engine.state.nodes["c"].tally.refused == 0


def test_a_restart_knows_of_copies() -> None:
    engine = late_round()
    copy = made(engine, Assigned)[-1]
    before = engine.state.works
    engine.crash()
    assert engine.state.works == before
    engine.hello(copy.node)
    turn(engine, 0.1, copy.node)
    assert not any(engine.state.copies_of(work) for work in engine.state.works.values())


@pytest.mark.parametrize("first", ["copy", "original"])
def test_rows_are_lost_only_with_both(first: str) -> None:
    engine = late_round()
    (original,) = engine.held["c"].values()
    copy = made(engine, Assigned)[-1]
    nodes = {"original": "c", "copy": copy.node}
    engine.leave(nodes.pop(first))
    assert not engine.state.redo
    assert len(engine.state.works) == 2  # with the slow one's
    (other,) = nodes.values()
    engine.leave(other)
    assert {work.root for work in engine.state.redo.values()} == {original.id}


def test_a_copy_that_is_refused_leaves_the_original_as_it_is() -> None:
    engine = late_round()
    copy = made(engine, Assigned)[-1]
    engine.offer(copy.node, answer_to(engine.held[copy.node][copy.assignment]))
    engine.answer(next(job for job in engine.jobs if isinstance(job, effects.Inspect)), good=False)
    assert not engine.state.redo
    assert "c" in {work.node for work in engine.state.works.values()}
    turn(engine, 3.0)
    assert len(speculation(engine)) == 1, "at most one copy of a task"


def test_a_node_without_a_measured_speed_gets_no_copy() -> None:
    """The speed that a node claims does not matter."""
    engine = rounds(a=1.0, c=1.0, slow=10.0)
    begin(engine, "a", "c", "slow")
    engine.leave("a")
    engine.tick(1.0)
    engine.hello("liar", profile=NodeProfile(1e9))
    engine.next("liar")
    turn(engine, 0.1, "liar")  # one result, at once: that much was seen of it
    engine.state.nodes["liar"].speed.rate = engine.shadow.nodes["liar"].speed.rate = 0.0
    engine.next("liar")
    turn(engine, 3.0)
    assert not speculation(engine)


def test_no_copy_that_would_hold_the_round_up() -> None:
    """Where all take as long, the round would wait longer for the copy than it is worth."""
    engine = rounds(a=4.0, b=4.0, c=4.0)
    begin(engine, "a", "b", "c")
    turn(engine, 4.0, "a", "b")
    engine.next("a")
    engine.next("b")
    turn(engine, 3.0)
    assert not speculation(engine)
    assert made(engine, VersionClosed)[-1].num_nodes == 2


def test_asynchronous_training_gets_no_speculative_copies() -> None:
    engine = Engine(engine_settings(tokens=10**6))
    for node in ("a", "b"):
        engine.hello(node)
    settle(engine)
    for _ in range(4):
        begin(engine, "a", "b")
        turn(engine, 1.0, "a", "b")
    begin(engine, "a", "b")
    for _ in range(20):
        turn(engine, 1.0, "a")
        begin(engine, "a")
    assert not speculation(engine)


def test_a_measurement_does_not_wait_for_a_hung_node() -> None:
    engine = Engine(engine_settings(tokens=10**6, **MEASURED), {"a": "x", "b": "x"})
    for node in ("a", "b"):
        engine.hello(node)
    for _ in range(3):
        begin(engine, "a", "b")
        turn(engine, 1.0, "a", "b")
    while not any(work.kind == "evaluate" for work in engine.state.works.values()):
        begin(engine, "a", "b")
        if any(work.kind == "evaluate" for work in engine.state.works.values()):
            break
        turn(engine, 1.0, "a", "b")
        if engine.machine.parts[Evaluation].busy is False:
            list(engine.machine.parts[Evaluation].measure())
    late = next(work for work in engine.state.works.values() if work.kind == "evaluate")
    others = [node for node in ("a", "b") if node != late.node]
    for _ in range(20):
        turn(engine, 1.0, *others)
        begin(engine, *others)
        if speculation(engine):
            break
    (note,) = speculation(engine)
    assert note.assignment == late.assignment
    turn(engine, 1.0, *others)
    assert engine.state.record.evaluations[-1][0] == late.base
    assert not any(engine.state.copies_of(work) for work in engine.state.works.values())


def test_copies_are_few() -> None:
    engine = rounds(a=1.0, b=1.0, c=1.0, slow=10.0)
    engine.state.totals.copies = engine.shadow.totals.copies = 2
    assert MOST_COPIES * engine.state.totals.assigned < 2
    begin(engine, "a", "b", "c", "slow")
    turn(engine, 1.0, "a", "b")
    engine.next("a")
    engine.next("b")
    turn(engine, 3.0)
    assert [work.node for work in engine.machine.parts[Speculation].late()] == ["c"]
    assert not speculation(engine)


def test_the_first_round_has_copies_too() -> None:
    """The engine saw no node do a task before the first round.

    It finds the node that will be late while the other nodes upload.
    """
    engine = Engine(engine_settings(asynchronous=False, tokens=10**6, sync_window=60.0, sync_longest_wait=100.0))
    for node in ("a", "b", "c", "slow"):
        engine.hello(node)
    settle(engine)
    engine.since = len(engine.journal)  # type: ignore[attr-defined]
    begin(engine, "a", "b", "c", "slow")
    turn(engine, 2.0)
    turn(engine, 1.0, "a", "b")
    engine.next("a")
    engine.next("b")
    turn(engine, 8.0)
    assert [note.by for note in speculation(engine)] == ["a"]


def test_a_round_that_a_resume_interrupted_has_copies_too() -> None:
    engine = rounds(a=1.0, b=1.0, c=1.0, slow=10.0)
    begin(engine, "a", "b", "c", "slow")
    turn(engine, 1.0, "a", "b")
    engine.crash()
    for node in ("a", "b", "c", "slow"):
        engine.hello(node)
    engine.next("a")
    engine.next("b")
    turn(engine, 8.0)
    assert [note.by for note in speculation(engine)] == ["a"]
