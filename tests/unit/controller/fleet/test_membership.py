"""Joining, coming back, leases: what the controller and a worker agree on after whatever happened."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnraise.controller.fleet import leases
from barnraise.controller.state import actions as act
from barnraise.controller.state import effects
from barnraise.controller.state import events as ev
from barnraise.controller.state.settings import FLEET_HEARTBEATS, LeaseSettings
from barnraise.controller.state.state import Status
from barnraise.core.types import KINDS, LinkReport
from barnraise.ledger.decisions import Noted
from barnraise.ledger.notes import Released
from barnraise.wire.messages import (
    FOR_GOOD,
    PROTOCOL_VERSION,
    Ack,
    Decline,
    Enrolled,
    Heartbeat,
    Hello,
    Identify,
    Offer,
    Pulse,
    Stop,
    Welcome,
)

from ....state_machine.engine import Engine, contribution, engine_settings


def sent(actions: list[act.Action]) -> list[object]:
    return [action.message for action in actions if isinstance(action, act.Send)]


def hello(
    engine: Engine, node: str, session: int, pending: tuple[int, ...] = (), protocol: int = PROTOCOL_VERSION
) -> list[object]:
    message = Hello(protocol, session, 1, engine.state.nodes[node].session.profile, 0, pending, kinds=tuple(KINDS))
    return sent(engine.handle(ev.Received(node, message)))


def at_work(**changes: object) -> tuple[Engine, int]:
    """A run with a node that holds one task, and the task's number."""
    engine = Engine(engine_settings(**changes))
    engine.hello("a")
    engine.next("a")
    return engine, next(iter(engine.held["a"]))


def test_a_proven_key_becomes_a_node_and_a_name_stays_with_its_first_key() -> None:
    engine = Engine(engine_settings())
    assert sent(engine.handle(ev.Admitted("a", "key 1"))) == [Enrolled("a")]
    engine.hello("a")
    assert engine.handle(ev.Admitted("a", "key 2")) == []
    assert engine.handle(ev.Admitted("b", "key 1")) == []
    assert engine.state.roster.keys == {"key 1": "a"}
    assert engine.state.nodes["a"].live


def test_a_stranger_and_another_protocol_are_turned_away() -> None:
    engine = Engine(engine_settings())
    (answer,) = sent(engine.handle(ev.Received("nobody", Heartbeat(0.0))))
    assert isinstance(answer, Stop)
    engine.handle(ev.Admitted("a", "key"))
    (answer,) = hello(engine, "a", 1, protocol=PROTOCOL_VERSION + 1)
    assert isinstance(answer, Stop)
    assert f"protocol version {PROTOCOL_VERSION + 1}" in answer.reason
    assert not engine.state.nodes["a"].live


def test_a_revoked_node_stays_out() -> None:
    engine, number = at_work()
    engine.hello("b")
    (answer,) = sent(engine.handle(ev.RevokeRequested("a", "it lies")))
    assert answer == Stop("the host revoked this machine's membership: it lies", final=False, refusal=FOR_GOOD)
    assert number in engine.state.redo  # others do its work
    offered = contribution(engine.held["a"][number])
    for _ in range(2):
        assert hello(engine, "a", 9) == [answer]
        engine.offer("a", offered)
        assert engine.payloads == set()
        assert engine.handle(ev.Admitted("another name", "key of a")) == []
        engine.crash()
    assert engine.state.nodes["a"].revoked == "it lies"
    assert engine.state.num_live == 1
    assert engine.handle(ev.RevokeRequested("a", "again")) == []


def test_a_contribution_submitted_before_a_revocation_is_judged() -> None:
    engine, number = at_work()
    engine.offer("a", contribution(engine.held["a"][number]))
    engine.handle(ev.RevokeRequested("a", "it lies"))
    engine.answer(next(job for job in engine.jobs if isinstance(job, effects.Inspect)))
    assert engine.state.totals.accepted == 1


def test_nothing_is_believed_before_a_hello() -> None:
    engine, _ = at_work()
    engine.leave("a")
    assert sent(engine.handle(ev.Received("a", Heartbeat(0.0)))) == [Identify()]


def test_an_offer_without_hello_is_not_kept() -> None:
    engine, number = at_work()
    task = engine.held["a"][number]
    engine.leave("a")
    engine.offer("a", contribution(task))
    assert engine.payloads == set()


def test_a_contribution_survives_that_its_node_restarts_while_it_is_inspected() -> None:
    engine, number = at_work()
    engine.offer("a", contribution(engine.held["a"][number]))
    engine.hello("a", restart=True)
    assert number in engine.state.works
    engine.answer(next(job for job in engine.jobs if isinstance(job, effects.Inspect)))
    assert engine.state.totals.accepted == 1


def test_a_contribution_survives_that_its_node_leaves_while_it_is_inspected_and_offers_again() -> None:
    engine, number = at_work()
    offered = contribution(engine.held["a"][number])
    engine.offer("a", offered)
    engine.leave("a")
    engine.offer("a", offered)
    engine.answer(next(job for job in engine.jobs if isinstance(job, effects.Inspect)))
    assert engine.state.totals.accepted == 1


def test_work_of_a_node_that_left_while_it_was_inspected_is_for_others_after_a_crash() -> None:
    engine, number = at_work()
    engine.offer("a", contribution(engine.held["a"][number]))
    engine.leave("a")
    engine.crash()
    assert list(engine.state.redo) == [number]


def test_lost_work_is_taken_up_again_by_its_node_or_by_another() -> None:
    engine, number = at_work()
    engine.tick(5.0)
    assert not engine.state.nodes["a"].live
    assert list(engine.state.redo) == [number]
    engine.hello("a", pending=(number,), working=())
    assert list(engine.state.works) == [number]
    engine.tick(20.0)  # its frames were late before, so it was given more time
    engine.hello("b")
    engine.next("b")
    assert engine.journal[-1].redo == number  # type: ignore[attr-defined]
    engine.hello("a", pending=(), working=(number,))
    assert engine.welcomes["a"].forget == (number,)


def test_a_node_cannot_claim_the_lost_work_of_another() -> None:
    engine, number = at_work()
    engine.leave("a")
    engine.hello("b", pending=(number,))
    assert list(engine.state.redo) == [number]
    assert engine.welcomes["b"].forget == (number,)


def test_a_task_that_the_worker_does_not_hold_is_released() -> None:
    engine, number = at_work()
    engine.hello("a", pending=(), working=())
    assert list(engine.state.redo) == [number]


def test_a_verdict_that_was_not_heard_is_told_again_before_the_welcome() -> None:
    engine, number = at_work()
    engine.offer("a", contribution(engine.held["a"][number]))
    engine.answer(next(job for job in engine.jobs if isinstance(job, effects.Inspect)))
    answers = hello(engine, "a", engine.sessions["a"], pending=(number,))
    assert answers[0] == Ack(number, True)
    assert isinstance(answers[1], Welcome)
    assert answers[1].forget == ()


def test_silence_ends_a_lease_when_the_deadline_says_and_not_before() -> None:
    engine, _ = at_work()
    engine.now = 0.3
    engine.heartbeat("a")
    engine.tick(5.0 - 1e-9)
    assert engine.state.nodes["a"].live
    assert 0.3 + 5.0 <= engine.machine.deadline <= 0.3 + 5.0 * (1 + 1 / leases.LOOKS)
    engine.now = engine.machine.deadline
    engine.tick(0.0)
    assert not engine.state.nodes["a"].live


def test_many_leases_are_looked_at_together() -> None:
    """A look at each node's lease on its own is a look at the fleet each time: 10,000 nodes had as many a lease."""
    engine, looks = Engine(engine_settings()), 0
    for i in range(100):
        engine.hello(f"node-{i}")
        engine.now += 0.01
    ends = engine.now + 50.0
    while (due := engine.machine.deadline) <= ends:
        engine.now, looks = due, looks + 1
        engine.tick(0.0)
        for i in range(100):
            engine.heartbeat(f"node-{i}")
    assert engine.state.num_live == 100
    assert looks <= 10 * leases.LOOKS


def test_a_lease_follows_the_nodes_link_within_its_bound() -> None:
    """A far node, or one whose frames come late, has a longer lease than others; the lease has a bound."""
    for node, report, gap, lease in [
        ("near", LinkReport(0.01), 1.0, 5.04),
        ("far", LinkReport(1.2), 1.0, 9.8),
        ("liar", LinkReport(3600.0), 1.0, 20.0),
        ("late", LinkReport(), 4.0, 6.9),
        ("later", LinkReport(0.5), 4.0, 8.87),
    ]:
        engine = Engine(engine_settings())
        engine.hello(node)
        engine.next(node, 0, report)
        engine.now += gap
        engine.heartbeat(node)
        engine.tick(lease - 0.01)
        assert engine.state.nodes[node].live
        engine.tick(0.02 + 5.0 / leases.LOOKS)
        assert not engine.state.nodes[node].live


def test_a_node_that_was_declared_dead_too_soon_gets_more_time() -> None:
    engine, _ = at_work()
    engine.tick(7.0)
    assert not engine.state.nodes["a"].live
    engine.hello("a")
    engine.tick(7.0)
    assert engine.state.nodes["a"].live


def test_no_node_is_declared_silent_while_the_disk_stalls() -> None:
    engine, _ = at_work()
    engine.now += 60.0
    engine.handle(ev.Stalled(60.0))
    engine.tick(4.9)
    assert engine.state.nodes["a"].live


def test_a_node_that_comes_and_goes_has_to_wait() -> None:
    """Each return costs rows of the ledger, so their number is limited."""
    engine = Engine(engine_settings())
    for _ in range(1000):
        engine.hello("a", restart=True)
        engine.leave("a")
    assert len(engine.journal) < 70
    engine.now += 60.0
    engine.hello("a", restart=True)
    assert engine.state.nodes["a"].live


def test_a_node_whose_work_comes_to_nothing_has_to_wait() -> None:
    engine = Engine(engine_settings())
    engine.hello("a")
    for _ in range(1000):
        engine.next("a")
        for task in list(engine.held["a"].values()):
            engine.offer("a", contribution(task, loss=1e9))
        engine.hello("a", pending=(), working=())
    assert len(engine.journal) < 70
    engine.now += 60.0
    engine.hello("a")
    engine.next("a")
    assert engine.held["a"]


def test_a_declined_task_goes_to_another_node() -> None:
    engine, number = at_work()
    engine.hello("b")
    engine.handle(ev.Received("b", Decline(number, "it is not mine")))
    assert number in engine.state.works, "nobody declines for another"
    task = engine.held["a"].pop(number)
    engine.handle(ev.Received("a", Decline(number, "no room")))
    assert engine.state.redo[number].stage is Status.RELEASED
    released = [d.note for d in engine.journal if isinstance(d, Noted) and isinstance(d.note, Released)]
    assert [note.reason for note in released] == ["declined: no room"]
    engine.next("b")
    (again,) = engine.held["b"].values()
    assert (again.rows, again.id) == (task.rows, number + 1)


def test_a_node_that_declines_again_and_again_has_to_wait() -> None:
    engine = Engine(engine_settings())
    engine.hello("a")
    for _ in range(1000):
        engine.next("a")
        for number in list(engine.held["a"]):
            del engine.held["a"][number]
            engine.handle(ev.Received("a", Decline(number, "no room")))
    assert len(engine.journal) < 70


def test_any_frame_renews_a_lease() -> None:
    engine, _ = at_work()
    engine.tick(4.0)
    engine.handle(ev.Heard("a"))
    engine.tick(4.0)
    assert engine.state.nodes["a"].live


def test_after_a_restart_nodes_have_the_grace_to_come_back_and_must_say_hello() -> None:
    engine = Engine(engine_settings())
    for node in ("a", "b"):
        engine.hello(node)
    engine.now = 100.0
    engine.crash()
    assert engine.state.num_live == 2
    assert engine.machine.deadline == 100.0 + 5.0 + 4.0
    assert sent(engine.handle(ev.Received("a", Heartbeat(100.0)))) == [Identify()]
    engine.hello("a")
    engine.tick(8.0)
    assert engine.account.live == {"b"}  # a said Hello and holds a lease like any other, b may still come
    engine.tick(1.0)
    assert engine.account.live == set()


def fleet(count: int) -> Engine:
    """Return a fleet whose controller hears at most 100 heartbeats a second, so that fleets are large sooner."""
    settings = engine_settings()
    engine = Engine(replace(settings, leases=replace(settings.leases, fleet=100.0)))
    engine.check = lambda: None  # type: ignore[method-assign]  # hundreds of nodes: compared once, at the end
    for index in range(count):
        engine.hello(f"n{index}")
        engine.next(f"n{index}")
    return engine


def test_a_dead_node_of_a_large_fleet_is_missed_soon() -> None:
    leases = LeaseSettings(1.0, 3.0, 30.0)
    assert leases.intervals(800) == (1.0, 3.0)
    assert leases.intervals(1000) == (1.25, 3.75)
    assert leases.intervals(10_000) == (12.5, 37.5)
    assert 10_000 / leases.intervals(10_000)[0] == FLEET_HEARTBEATS


def test_intervals_grow_with_the_fleet() -> None:
    engine = fleet(300)
    (pulse,) = sent(engine.handle(ev.Received("n0", Heartbeat(0.5))))
    assert pulse == Pulse(0.5, 3.0, 15.0)
    assert engine.welcomes["n299"].lease == pulse.lease
    engine.tick(pulse.lease - 0.01)
    assert len(engine.account.live) == 300
    engine.tick(0.02)
    assert engine.account.live == set()


def test_nodes_that_were_told_a_long_interval_do_not_seem_silent_when_the_fleet_shrinks() -> None:
    engine = fleet(1000)
    engine.heartbeat("n0")  # told: every 10 s, 50 s at the latest
    for index in range(1, 1000):
        engine.handle(ev.Lost(f"n{index}", "evicted"))
    engine.tick(10.0)
    assert engine.account.live == {"n0"}
    engine.heartbeat("n0")  # told: every second
    for _ in range(50):
        engine.tick(1.0)
        engine.heartbeat("n0")
    engine.tick(5.0)
    assert engine.account.live == set()


def test_after_the_last_version_a_node_is_told_to_stop() -> None:
    engine, _ = at_work()
    engine.handle(ev.StopRequested("asked"))
    answers = hello(engine, "a", 1)
    assert [type(answer) for answer in answers] == [Stop]


@pytest.mark.parametrize("live", [1, 50, 100])
def test_a_small_fleet_keeps_the_configured_intervals(live: int) -> None:
    assert engine_settings().leases.intervals(live) == (1.0, 5.0)


def test_a_node_none_of_whose_updates_can_be_taken_is_told_to_stop() -> None:
    engine = Engine(engine_settings())
    engine.hello("a")
    for number in range(1, 11):
        engine.next("a")
        engine.offer("a", contribution(engine.held["a"][number]))
        inspect = next(job for job in engine.jobs if isinstance(job, effects.Inspect))
        assert engine.state.nodes["a"].live
        engine.jobs.remove(inspect)
        engine.spoiled.add(number)
        answers = sent(engine.handle(effects.Inspected(inspect.epoch, number, 1e30)))
    assert not engine.state.nodes["a"].live
    (stop,) = [answer for answer in answers if isinstance(answer, Stop)]
    assert not stop.final
    assert stop.reason.startswith("training diverged: 10 updates in a row could not be taken (the last: norm 1e+30")


def test_a_lone_node_whose_work_came_to_nothing_is_asked_again_though_nothing_else_happens() -> None:
    engine = Engine(engine_settings())
    engine.hello("a")
    for _ in range(30):
        engine.next("a")
        engine.hello("a", pending=(), working=())
    engine.next("a")
    assert not engine.held["a"]
    engine.heartbeat("a")
    assert engine.now < engine.machine.deadline <= engine.now + 5.0
    for _ in range(30):
        engine.tick(0.1)
        engine.heartbeat("a")
    assert engine.held["a"]


def test_an_upload_is_not_given_up_while_the_disk_is_waited_for() -> None:
    engine, number = at_work()
    engine.handle(ev.Received("a", Offer(contribution(engine.held["a"][number]))))
    engine.now += 60.0
    engine.handle(ev.Stalled(60.0))
    engine.tick(0.0)
    engine.upload("a", number)
    assert engine.payloads == {("a", number)}
