"""Suspects, nodes that come back late, and nodes that are lost again and again."""

from __future__ import annotations

import pytest

from barnraise.account.nodes import HELD_OFF, living
from barnraise.controller.fleet import backoff
from barnraise.controller.fleet.backoff import Backoff
from barnraise.controller.fleet.fleet import Fleet
from barnraise.controller.fleet.leases import Leases
from barnraise.controller.fleet.records import NodeRecords
from barnraise.controller.fleet.speeds import Speeds
from barnraise.controller.state import effects
from barnraise.controller.state import events as ev
from barnraise.controller.state.state import Status
from barnraise.core.types import LinkReport
from barnraise.ledger.decisions import Change, NodeChanged, Noted
from barnraise.ledger.notes import HeldOff
from barnraise.trust.reputation import Reputation
from barnraise.wire.messages import Ack, Offer, RequestTask

from ....state_machine.engine import Engine, contribution, engine_settings
from .test_membership import sent


def fleet(*nodes: str, **changes: object) -> Engine:
    engine = Engine(engine_settings(tokens=12_000, **changes))
    for node in nodes:
        engine.hello(node)
    return engine


def beats(engine: Engine, *nodes: str, seconds: float) -> None:
    """The nodes are heard once a second; the others are silent."""
    for _ in range(round(seconds)):
        engine.tick(1.0)
        for node in nodes:
            engine.heartbeat(node)


def flap(engine: Engine, node: str, times: int) -> None:
    """Its process is killed and started again, and asks for work."""
    for _ in range(times):
        engine.handle(ev.Lost(node, "killed by signal 9", Change.KILLED))
        engine.hello(node, restart=True)
        engine.next(node)


def waits_to_be_heard(engine: Engine, node: str) -> bool:
    hold = engine.machine.parts[Fleet].available(node)
    return hold is not None and hold.until_heard


def rests(engine: Engine) -> list[HeldOff]:
    return [d.note for d in engine.journal if isinstance(d, Noted) and isinstance(d.note, HeldOff)]


# Suspicion


def test_a_suspect_gets_no_task_until_it_is_heard_and_keeps_what_it_has() -> None:
    """A synchronous round: who asks waits for the next one, and may have died meanwhile."""
    engine = fleet("a", "b", asynchronous=False)
    for node in ("a", "b"):
        engine.next(node, 0, LinkReport(0.01))
        engine.offer(node, contribution(next(iter(engine.held[node].values()))))
        engine.next(node, 0, LinkReport(0.01))
    beats(engine, "b", seconds=3.0)
    assert waits_to_be_heard(engine, "a")
    assert engine.state.nodes["a"].live
    while engine.jobs:
        engine.answer(engine.jobs[0])
    assert engine.state.newest.version == 1
    assert not engine.held["a"]
    assert engine.held["b"]
    assert not engine.state.redo, "suspicion takes nothing away"
    engine.heartbeat("a")
    assert engine.held["a"], "the next frame ends it"
    assert not engine.machine.parts[NodeRecords]["a"].session.passed_over
    assert [d for d in engine.journal if isinstance(d, NodeChanged)][-1].change == Change.JOINED


def test_suspicion_is_no_row_of_the_ledger() -> None:
    engine = fleet("a")
    engine.next("a", 0, LinkReport(0.01))
    rows = len(engine.journal)
    engine.tick(4.0)
    assert engine.machine.parts[Leases].suspects(engine.now) == ["a"]
    assert len(engine.journal) == rows


def test_a_silence_of_all_is_ours_and_says_nothing_of_their_links() -> None:
    nodes = ("a", "b", "c")
    engine = fleet(*nodes)
    for node in nodes:
        engine.next(node, 0, LinkReport(0.01))
    beats(engine, *nodes, seconds=10.0)
    engine.now += 4.0  # the controller's disk hung, say
    for node in nodes:
        engine.heartbeat(node)
    known = {node: engine.machine.parts[NodeRecords][node].frames.detector for node in nodes}
    assert max(known[node].latest(engine.now) for node in nodes) == 0.0
    beats(engine, "a", "b", seconds=3.0)
    engine.heartbeat("c")
    assert known["c"].latest(engine.now) > 1.0, "this silence is its own"


# A late return


def test_a_late_result_of_repeated_work_is_discarded_and_counted_once() -> None:
    engine = fleet("a", "b")
    engine.next("a", 0, LinkReport(0.01))
    (number,) = engine.held["a"]
    late = contribution(engine.held["a"][number])
    beats(engine, "b", seconds=8.0)
    assert not engine.state.nodes["a"].live
    engine.next("b")
    (again,) = engine.held["b"].values()
    engine.offer("b", contribution(again))
    engine.answer(next(job for job in engine.jobs if isinstance(job, effects.Inspect)))
    credit = engine.state.totals.tokens
    assert credit == again.tokens
    engine.hello("a", pending=(number,), working=())
    assert engine.welcomes["a"].forget == (number,)
    answers = sent(engine.handle(ev.Received("a", Offer(late))))
    assert [(type(answer), answer.accepted) for answer in answers] == [(Ack, False)]
    assert engine.state.totals.tokens == credit
    assert engine.state.nodes["a"].tally.tokens == 0
    assert engine.state.totals.accepted == 1
    assert engine.state.totals.refused == 0, "a return is no fault"
    engine.next("a")
    assert engine.held["a"], "it is welcome, and gets work at once"


def test_a_returning_node_gets_its_released_task_back() -> None:
    engine = fleet("a", "b")
    engine.next("a", 0, LinkReport(0.01))
    (number,) = engine.held["a"]
    late = contribution(engine.held["a"][number])
    beats(engine, "b", seconds=8.0)
    assert engine.state.redo[number].stage is Status.RELEASED
    engine.hello("a", pending=(number,), working=())
    engine.offer("a", late)
    engine.answer(next(job for job in engine.jobs if isinstance(job, effects.Inspect)))
    assert engine.state.nodes["a"].tally.tokens == engine.state.totals.tokens == late_tokens(engine, number)
    assert not engine.state.redo


def late_tokens(engine: Engine, number: int) -> int:
    return engine.account.tasks[number].tokens


# Flapping


def test_a_node_that_is_lost_again_and_again_rests_longer_each_time() -> None:
    engine = fleet("a", "b")
    flap(engine, "a", int(backoff.FREE))
    assert rests(engine) == []
    engine.next("a")
    assert engine.held["a"]
    for expected in (1, 2, 4):
        flap(engine, "a", 1)
        assert rests(engine)[-1].seconds == pytest.approx(expected * backoff.FIRST_REST)
        engine.next("a")
        assert not engine.held["a"]
    assert rests(engine)[-1].reason == "it was lost, or sent away, and came back 6 times lately"
    seconds = rests(engine)[-1].seconds
    beats(engine, "a", "b", seconds=seconds - 1.0)
    assert not engine.held["a"]
    beats(engine, "a", "b", seconds=2.0)
    assert engine.held["a"], "it is not asked to ask again"


def test_a_rest_is_never_longer_than_the_longest_and_forgotten_slowly() -> None:
    engine = fleet("a", "b")
    for _ in range(60):
        flap(engine, "a", 1)
        beats(engine, "a", "b", seconds=10.0)
    assert rests(engine)[-1].seconds == backoff.LONGEST_REST
    engine.now += 8 * backoff.HALF_LIFE
    for node in ("a", "b"):
        engine.hello(node)
    count = len(rests(engine))
    flap(engine, "a", 2)
    assert len(rests(engine)) == count


def test_a_node_that_leaves_in_order_does_not_flap() -> None:
    engine = fleet("a", "b")
    for _ in range(10):
        engine.leave("a")
        engine.hello("a", restart=True)
        engine.next("a")
        engine.offer("a", contribution(next(iter(engine.held["a"].values()))))
        while engine.jobs:
            engine.answer(engine.jobs[0])
    assert rests(engine) == []


def test_a_node_that_abandons_its_first_task_each_time_flaps() -> None:
    """As one whose memory is too small: it breaks down, and says why."""
    engine = fleet("a", "b")
    for _ in range(4):
        engine.next("a")
        assert engine.held["a"]
        engine.leave("a")
        engine.hello("a", restart=True)
    assert rests(engine) == []
    engine.next("a")
    assert not engine.held["a"]
    assert len(rests(engine)) == 1


def test_a_node_that_submitted_work_may_abandon_its_next_task() -> None:
    """It leaves as a worker that has notice: the running task is submitted, the waiting one is not begun."""
    engine = fleet("a", "b")
    for _ in range(10):
        engine.next("a")
        engine.offer("a", contribution(next(iter(engine.held["a"].values()))))
        while engine.jobs:
            engine.answer(engine.jobs[0])
        engine.next("a")
        assert engine.state.nodes["a"].open
        engine.leave("a")
        engine.hello("a", restart=True)
    engine.next("a")
    assert engine.held["a"]
    assert rests(engine) == []


def test_a_node_on_a_slow_link_that_was_removed_once_is_not_held_off() -> None:
    engine = fleet("a", "b")
    engine.next("a", 0, LinkReport(0.01))
    for _ in range(2):
        beats(engine, "b", seconds=8.0)
        engine.hello("a")
    assert rests(engine) == []
    assert [d.change for d in engine.journal if isinstance(d, NodeChanged)].count(Change.SILENT) == 1


def test_no_node_is_held_off_after_an_outage_of_the_controllers_line() -> None:
    nodes = ("a", "b", "c")
    engine = fleet(*nodes)
    for _ in range(6):
        beats(engine, *nodes, seconds=3.0)
        beats(engine, seconds=25.0)
        assert engine.state.num_live == 0
        for node in nodes:
            engine.hello(node)
    assert rests(engine) == []
    records = engine.machine.parts[NodeRecords]
    assert not any(records[node].returns.count for node in nodes)
    beats(engine, "a", "b", seconds=25.0)
    assert engine.state.num_live == 2
    engine.hello("c")
    assert [node for node in nodes if records[node].returns.count] == ["c"]


def test_a_lone_node_gets_work_however_often_it_was_lost() -> None:
    engine = fleet("a")
    flap(engine, "a", 10)
    engine.next("a")
    assert engine.held["a"]
    assert rests(engine) == []


def test_a_node_that_the_aggregation_rule_needs_is_not_held_off() -> None:
    engine = fleet("a", "b", "c", minimum_nodes=3)
    flap(engine, "a", 6)
    engine.next("a")
    assert engine.held["a"]
    engine.hello("d")
    engine.hello("a", restart=True)
    engine.next("a")
    assert not engine.held["a"]
    engine.leave("d")
    assert engine.held["a"], "it is wanted again"


def test_others_do_not_count_on_a_node_that_rests() -> None:
    engine = fleet("a", "b", "c", buffer_size=3)
    engine.observed(a=100.0, b=100.0, c=100.0)
    flap(engine, "a", 6)
    engine.machine.parts[Speeds].at = -1
    engine.handle(ev.Received("b", RequestTask(0, LinkReport(0.01))))
    speeds = engine.machine.parts[Speeds]
    speeds.refresh()
    assert [node.id for node in speeds.counted] == ["b", "c"]
    assert speeds.total == pytest.approx(200.0)
    assert speeds.participation(engine.state.nodes["b"]) == pytest.approx(0.5)
    engine.handle(ev.Tick())
    assert engine.state.buffer.size == 2


def test_the_host_sees_which_nodes_are_held_off() -> None:
    engine = fleet("a", "b")
    flap(engine, "a", 6)
    assert list(engine.machine.snapshot(engine.now).holds) == ["a"]
    rows = living(engine.state, {}, engine.now, doubts={"a": HELD_OFF})
    assert [row.state for row in rows] == ["held off", "starting"]


def test_a_restart_of_the_controller_forgets_held_off_nodes() -> None:
    engine = fleet("a", "b")
    flap(engine, "a", 6)
    engine.crash()
    for node in ("a", "b"):
        engine.hello(node)
    engine.next("a")
    assert engine.held["a"]


def test_a_convicted_node_gets_no_tasks_and_is_not_counted() -> None:
    """This holds however few other nodes there are, and a controller that starts again knows of the conviction."""
    engine = fleet("a", "b", "c", buffer_size=3)
    engine.observed(a=100.0, b=100.0, c=100.0)
    machine, until = engine.machine, engine.now + 600.0
    for state in (engine.state, engine.shadow):
        state.nodes["a"].tally.reputation = Reputation(1, until)
    machine.parts[Backoff].__init__(machine.context, machine.parts[NodeRecords])  # type: ignore[misc]
    machine.parts[Speeds].at = -1
    engine.handle(ev.Tick())
    assert machine.parts[Speeds].num_working == 2
    assert machine.snapshot(engine.now).holds["a"].until == until
    assert engine.state.buffer.size == 2
    engine.next("a")
    assert not engine.held["a"]
    machine.context.now = until
    assert not machine.parts[Backoff].held("a")
