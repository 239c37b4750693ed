"""The host's pause: nodes wait for tasks, all else continues, and it lasts until the host ends it."""

from __future__ import annotations

import math

import pytest

from barnraise.controller.state import effects
from barnraise.controller.state import events as ev
from barnraise.controller.state.part import TaskHold
from barnraise.controller.work.utilisation import Utilisation
from barnraise.core.types import Train
from barnraise.ledger import notes
from barnraise.ledger.decisions import Noted
from barnraise.wire.messages import Assign

from ....state_machine.engine import Engine, answer_to, contribution, engine_settings

PAUSE, CONTINUE = ev.PauseRequested("the lab moves"), ev.ContinueRequested()
WHY = "the host paused the run: the lab moves"


def working(*nodes: str, **changes: object) -> Engine:
    """A run whose nodes have a training task each; what they are to measure before that is measured."""
    engine = Engine(engine_settings(**{"tokens": 10**6, "buffer_size": len(nodes), **changes}))
    for node in nodes:
        engine.hello(node)
    for node in nodes:
        engine.next(node)
        while not isinstance(next(iter(engine.held[node].values())), Train):
            hand_in(engine, node)
            engine.next(node)
    return engine


def hand_in(engine: Engine, node: str) -> None:
    """Submit the node's oldest task, and have all that follows done."""
    engine.offer(node, answer_to(next(iter(engine.held[node].values()))))
    while engine.jobs:
        engine.answer(engine.jobs[0])


def kinds(engine: Engine) -> list[str]:
    """The notes of pauses, in order."""
    return [d.kind for d in engine.journal if isinstance(d, Noted) and d.kind.startswith("host_")]


def test_nodes_wait_and_are_served_once_the_host_continues() -> None:
    engine = working("a", "b")
    engine.handle(PAUSE)
    hand_in(engine, "a")
    engine.next("a")
    engine.hello("c")
    engine.next("c")
    assert not engine.held["a"]
    assert not engine.held["c"]
    assert engine.machine.snapshot(engine.now).holds == dict.fromkeys("abc", TaskHold(math.inf, WHY))
    assert engine.machine.deadline > engine.now
    given = {action.node for action in engine.handle(CONTINUE) if isinstance(getattr(action, "message", None), Assign)}
    assert given == {"a", "c"}
    assert not engine.machine.snapshot(engine.now).holds


def test_open_tasks_still_make_a_version_which_is_measured() -> None:
    engine = working("a", "b")
    engine.handle(PAUSE)
    hand_in(engine, "a")
    assert engine.state.newest.version == 0
    hand_in(engine, "b")
    assert engine.state.newest.version == 1
    assert engine.state.progress.host_paused == WHY


def test_a_version_that_nodes_measure_is_measured_by_the_controller_meanwhile() -> None:
    engine = working("a", "b", by_workers=True)
    engine.handle(PAUSE)
    for _ in range(200):
        for node in "ab":
            engine.heartbeat(node)
            for task in list(engine.held[node].values()):
                engine.offer(node, answer_to(task))
            if node not in engine.asked and not engine.held[node]:
                engine.next(node)
        engine.tick(1.0)
        while engine.jobs:
            engine.answer(engine.jobs[0])
    assert engine.state.record.evaluations
    assert engine.state.num_live == 2, "nodes that rest stay in the run"


def test_requests_that_change_nothing_are_not_noted() -> None:
    engine = working("a")
    assert engine.handle(CONTINUE) == []
    engine.handle(PAUSE)
    assert engine.handle(ev.PauseRequested("again")) == []
    assert engine.state.progress.host_paused == WHY
    engine.handle(CONTINUE)
    assert engine.handle(CONTINUE) == []
    assert kinds(engine) == ["host_paused", "host_continued"]


def test_a_pause_survives_a_crash() -> None:
    engine = working("a")
    engine.handle(ev.PauseRequested(""))
    engine.crash()
    engine.hello("a")
    engine.next("a")
    assert engine.state.progress.host_paused == "the host paused the run"
    hand_in(engine, "a")
    engine.next("a")
    assert not engine.held["a"]
    engine.handle(CONTINUE)
    assert engine.held["a"]
    engine.crash()
    assert not engine.state.progress.host_paused
    assert engine.state.progress.continued == engine.now


def test_the_pauses_of_the_host_and_of_the_rule_do_not_end_each_other() -> None:
    engine = Engine(engine_settings(minimum_nodes=2))
    engine.hello("a")
    engine.handle(PAUSE)
    rule = engine.state.progress.paused
    assert rule == "1 live node, but the aggregation rule needs 2"
    engine.hello("b")
    assert (engine.state.progress.paused, engine.state.progress.host_paused) == ("", WHY)
    for node in "ab":
        engine.next(node)
    assert not engine.held["a"]
    engine.leave("b")
    engine.handle(CONTINUE)
    assert (engine.state.progress.paused, engine.state.progress.host_paused) == (rule, "")
    assert not engine.held["a"]
    engine.hello("b")
    assert engine.held["a"]


@pytest.mark.parametrize("changes", [{}, {"by_workers": True}, {"flush": True, "last": 500}])
def test_a_paused_run_finishes(changes: dict[str, object]) -> None:
    engine = working("a", "b", **changes)
    engine.handle(PAUSE)
    hand_in(engine, "a")
    engine.handle(ev.StopRequested("asked to finish"))
    assert not engine.state.progress.host_paused
    assert engine.handle(PAUSE) == []
    engine.finish()
    assert engine.state.newest.version == 1


def test_a_run_whose_budget_is_met_meanwhile_ends() -> None:
    engine = working("a", tokens=12, by_workers=True)
    engine.handle(PAUSE)
    hand_in(engine, "a")
    assert engine.state.progress.final
    engine.next("a")
    assert engine.held["a"], "the last version is measured by nodes"
    hand_in(engine, "a")
    while engine.finished is None:
        engine.tick(1.0)
        engine.heartbeat("a")
        while engine.jobs:
            engine.answer(engine.jobs[0])
    assert engine.state.progress.finished == notes.BUDGET_MET


def test_a_long_pause_costs_no_node_its_place_in_a_version() -> None:
    engine = working("a", "b", "c")
    for _ in range(6):
        for node in "abc":
            engine.tick(0.3)
            hand_in(engine, node)
            engine.next(node)
    size = engine.state.buffer.size
    assert size == 3
    engine.handle(PAUSE)
    for node in "abc":
        hand_in(engine, node)
        engine.next(node)
    for _ in range(300):
        for node in "abc":
            engine.heartbeat(node)
        engine.tick(1.0)
    engine.handle(CONTINUE)
    assert engine.state.buffer.size == size
    assert all(engine.held[node] for node in "abc")


def test_a_round_waits_as_long_after_a_pause_as_before() -> None:
    engine = Engine(engine_settings(asynchronous=False, tokens=10**6, sync_longest_wait=8.0, sync_window=100.0))
    for node in "ab":
        engine.hello(node)
    engine.handle(PAUSE)
    for _ in range(60):
        engine.tick(1.0)
        for node in "ab":
            engine.heartbeat(node)
    for node in "ab":
        engine.next(node)
    engine.handle(CONTINUE)
    engine.offer("a", contribution(next(iter(engine.held["a"].values()))))
    while engine.jobs:
        engine.answer(engine.jobs[0])
    assert engine.state.closing is None
    assert engine.state.newest.version == 0, "b is waited for"
    hand_in(engine, "b")
    assert engine.state.newest.version == 1


def test_a_pause_does_not_count_as_time_without_a_task() -> None:
    engine = working("a")
    engine.tick(1.0)
    engine.heartbeat("a")
    hand_in(engine, "a")
    engine.handle(PAUSE)
    before = engine.machine.parts[Utilisation].until(engine.now).available
    for _ in range(50):
        engine.tick(1.0)
        engine.heartbeat("a")
    engine.handle(CONTINUE)
    assert engine.machine.parts[Utilisation].until(engine.now).available == before
    engine.tick(2.0)
    assert engine.machine.parts[Utilisation].until(engine.now).available == pytest.approx(before + 2.0)


def test_a_measurement_of_the_controller_ends_during_a_pause() -> None:
    engine = Engine(engine_settings())
    engine.hello("a")
    engine.handle(PAUSE)
    [job] = [job for job in engine.jobs if isinstance(job, effects.Evaluate)]
    engine.answer(job)
    assert engine.state.record.evaluations
