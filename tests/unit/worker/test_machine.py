"""The worker's machine: greeting, keeping its pipeline full, submitting, leaving."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from barnraise.core.types import Audit, Blob, Evaluate, Flush, LinkReport, News, ParameterRange, Update
from barnraise.wire.messages import (
    EVERYTHING,
    INLINE_BYTES,
    Ack,
    Assign,
    Decline,
    Heartbeat,
    Hello,
    Identify,
    Leave,
    Newer,
    Offer,
    Pulse,
    RequestTask,
    SendPayload,
)
from barnraise.worker import actions as act
from barnraise.worker import events as ev
from barnraise.worker.ahead import Lead
from barnraise.worker.contact import HELLO_INTERVAL
from barnraise.worker.incoming import Incoming
from barnraise.worker.leaving import GRACE, PATIENCE, PROBE
from barnraise.worker.machine import MOST_FAILURES, NOT_FINITE
from barnraise.worker.outgoing import SLOWEST, UPLOAD_PATIENCE, Outgoing
from barnraise.worker.tasks import ASK_PATIENCE

from ...state_machine.bench import SHARDS, Bench, delta, make_audit, make_evaluation, make_task, snapshot
from ...state_machine.engine import MANIFEST, digest, overlap

LONGEST_ANSWER = ASK_PATIENCE + INLINE_BYTES / SLOWEST
"""Seconds for which a worker on the slowest of lines waits for one."""


def ready(overlapping: bool = True) -> Bench:
    """Return a worker whose first task runs."""
    bench = Bench(overlap(overlapping))
    while bench.training is None:
        for step in bench.due():
            step()
    return bench


def fetch_all(bench: Bench) -> None:
    while bench.fetching:
        bench.fetched(next(iter(bench.fetching)))


def with_waiting(bench: Bench) -> int:
    """Ask for the next task, and have it ready to start: its number."""
    bench.nearly()
    bench.assign()
    fetch_all(bench)
    bench.finish_update()
    assert bench.worker.tasks.waiting is not None
    return bench.worker.tasks.waiting.id


def hellos(bench: Bench) -> list[Hello]:
    return [message for message in bench.sent if isinstance(message, Hello)]


def test_a_worker_greets_prepares_and_asks() -> None:
    bench = Bench()
    assert [type(message) for message in bench.sent] == [Hello]
    bench.welcome()
    fetch_all(bench)
    assert bench.preparing
    bench.finish_preparing()
    assert bench.hello is not None
    assert bench.hello.profile.tokens_per_second == 50.0
    bench.welcome()
    assert bench.sent[-1] == RequestTask(-1)


@pytest.mark.parametrize("behind", [0, 3])
def test_a_worker_that_comes_back_gets_only_deltas(behind: int) -> None:
    bench = prepared(delta(4))
    bench.newest = 4 + behind
    bench.welcome()
    assert bench.sent[-1] == RequestTask(4)
    bench.assign()
    assert set(bench.fetching) - {SHARDS[0].digest} == {digest(version) for version in range(5, 5 + behind)}
    fetch_all(bench)
    bench.finish_update()
    assert bench.training is not None
    assert bench.training.base == 4 + behind


@pytest.mark.parametrize("newest", [msgspec.structs.replace(delta(4), parameters_digest="f" * 64), delta(3)])
def test_a_replica_of_an_earlier_process_is_void_where_the_controller_names_another(newest: Update) -> None:
    bench = prepared(delta(4))
    bench.replica = -1
    bench.welcome(newest=newest)
    assert bench.sent[-1] == RequestTask(-1)


def prepared(replica: Update) -> Bench:
    """Return a worker that has told the controller of this replica of an earlier process."""
    bench = Bench()
    bench.welcome()
    fetch_all(bench)
    bench.finish_preparing(replica)
    assert bench.hello is not None
    assert bench.hello.have == replica.version
    return bench


def test_a_slow_answer_to_a_repeated_greeting_counts() -> None:
    """With a round trip of several intervals each answer would come after the next Hello was sent."""
    bench = Bench()
    for _ in range(3):
        bench.tick(HELLO_INTERVAL)
    assert [hello.greeting for hello in hellos(bench)] == [1, 1, 1, 1]
    bench.welcome()
    assert bench.worker.contact.greeted


def test_a_worker_greets_again_after_a_lost_request_or_answer() -> None:
    """And asks again once it is welcomed; while there is something to do it waits in peace."""
    bench = ready(overlapping=False)
    number = bench.training.id if bench.training else 0
    for _ in range(40):
        bench.tick(1.0)
        bench.pulse(1.0)
    assert not bench.worker.tasks.unanswered(bench.now)
    bench.finish_task()
    bench.ack(number, True)
    before = len(hellos(bench))
    assert isinstance(bench.sent[-1], RequestTask)
    for _ in range(int(LONGEST_ANSWER) + 2):
        bench.tick(1.0)
        bench.pulse(1.0)
    assert len(hellos(bench)) > before
    bench.welcome()
    assert isinstance(bench.sent[-1], RequestTask)


def test_a_worker_waits_for_an_answer_behind_a_long_download() -> None:
    """A phone's line carries a version for a minute; the answer comes behind it, with bytes of its own."""
    bench = ready()
    number = bench.training.id if bench.training else 0
    bench.newer()
    bench.nearly()
    assert isinstance(bench.sent[-1], RequestTask)
    bench.finish_task()
    bench.ack(number, True)
    before = len(hellos(bench))

    def wait(seconds: float) -> None:
        for _ in range(int(seconds)):
            bench.tick(1.0)
            bench.pulse(1.0)

    wait(2 * LONGEST_ANSWER)
    fetch_all(bench)
    bench.finish_update()
    wait(LONGEST_ANSWER - 2)
    assert len(hellos(bench)) == before
    wait(4)
    assert len(hellos(bench)) > before


def test_a_task_about_a_version_that_never_comes_is_given_up() -> None:
    """The message that told of the version was lost: the controller thinks that it is here."""
    bench = ready(overlapping=False)
    assert bench.training is not None
    lost = msgspec.structs.replace(bench.training, id=99, base=bench.training.base + 3, news=News((), 0, 1.0))
    bench.finish_task()
    bench.ack(bench.worker.outgoing.newest, True)
    bench.hear(Assign(lost))
    fetch_all(bench)
    before = len(hellos(bench))
    assert bench.worker.tasks.held == (99,)
    for _ in range(int(LONGEST_ANSWER) + 2):
        bench.tick(1.0)
        bench.pulse(1.0)
    assert len(hellos(bench)) > before
    assert hellos(bench)[-1].working == ()
    bench.welcome()
    assert isinstance(bench.sent[-1], RequestTask)


def test_a_payload_whose_answer_was_lost_is_offered_again() -> None:
    """Though it was asked for, and its last byte has left long ago."""
    bench = ready(overlapping=False)
    bench.finish_task()
    number = bench.worker.outgoing.newest
    bench.go(number, 0)
    before = len(bench.sent)
    seconds = int(UPLOAD_PATIENCE + 420 / SLOWEST)
    for _ in range(seconds - 1):
        bench.tick(1.0)
        bench.pulse(1.0)
    assert not any(isinstance(message, Offer) for message in bench.sent[before:])
    for _ in range(3):
        bench.tick(1.0)
        bench.pulse(1.0)
    offers = [message for message in bench.sent[before:] if isinstance(message, Offer)]
    assert [offer.result.assignment for offer in offers] == [number]


def test_the_later_of_two_flushes_counts() -> None:
    bench = ready()
    first, second = (Assign(Flush(id=number, base=0, parameters=ParameterRange(0, 100))) for number in (50, 51))
    bench.hear(second)
    bench.finish_task()
    assert bench.training == second.task
    bench.finish_task()
    bench.hear(first)
    assert list(bench.worker.outgoing.pending) == [51]
    assert bench.training is None


def test_a_task_that_comes_twice_is_done_once() -> None:
    bench = ready(overlapping=False)
    assert bench.training is not None
    again = Assign(msgspec.structs.replace(bench.training, news=News((), 0, 1.0)))
    bench.hear(again)
    assert bench.worker.tasks.waiting is None
    bench.finish_task()
    bench.ack(again.task.id, True)
    bench.hear(again)
    assert bench.training is None
    assert bench.worker.tasks.waiting is None


def test_numbers_of_another_controller_are_new_assignments() -> None:
    """A standby that lacked the newest rows gives their numbers to other tasks.

    A worker that took them for repeated messages did one task in half a minute.
    """
    bench = ready(overlapping=False)
    assert bench.training is not None
    first = bench.training.id
    bench.finish_task()
    bench.ack(first, True)
    bench.hear(Identify())
    bench.succeed(lost=first)
    bench.assign()
    fetch_all(bench)
    bench.finish_update()
    assert bench.training is not None
    assert bench.training.id == first


def test_a_number_that_another_controller_gives_again_waits_for_the_dropped_update_of_that_number() -> None:
    """Its encoding cannot be stopped, and would have ended in the place of the new task."""
    bench = ready()
    assert bench.training is not None
    first = bench.training.id
    bench.take_steps()
    assert first in bench.encoding
    bench.hear(Identify())
    bench.succeed(lost=first)
    assert bench.worker.tasks.encoding[first].dropped
    bench.assign()
    fetch_all(bench)
    bench.finish_update()
    assert bench.worker.tasks.waiting is not None
    assert bench.worker.tasks.waiting.id == first
    bench.finish_encoding()
    assert bench.training is not None
    assert bench.training.id == first
    assert not bench.worker.tasks.encoding


def test_numbers_that_a_resumed_controller_knows_are_not_done_again() -> None:
    """The message may come twice, once before and once after the worker was started again."""
    bench = ready(overlapping=False)
    assert bench.training is not None
    again = Assign(msgspec.structs.replace(bench.training, news=News((), 0, 1.0)))
    bench.finish_task()
    bench.ack(again.task.id, True)
    bench.hear(Identify())
    bench.succeed(lost=0)
    bench.hear(again)
    assert bench.worker.tasks.waiting is None


def test_a_replica_of_versions_that_another_controller_lacks_is_void() -> None:
    bench = ready(overlapping=False)
    bench.finish_task()
    version = bench.replica
    bench.hear(Identify())
    bench.epoch += 1
    bench.welcome(newest=delta(version))
    assert bench.worker.incoming.have == version
    bench.hear(Identify())
    bench.epoch += 1
    other = msgspec.structs.replace(delta(version), parameters_digest=digest(17))
    bench.replica = -1
    bench.welcome(newest=other)
    assert bench.asked is not None
    assert bench.asked.have == -1


def test_an_answer_to_an_older_greeting_does_not_count() -> None:
    bench = ready()
    first = bench.hello
    assert first is not None
    bench.hear(Identify())
    bench.welcome(greeting=first.greeting)
    assert not bench.worker.contact.greeted
    bench.hear(Identify())  # in answer to something sent before the last Hello
    assert len(hellos(bench)) == first.greeting + 1
    bench.welcome()
    assert bench.worker.contact.greeted


def test_a_missing_manifest_is_requested_again() -> None:
    bench = Bench()
    bench.welcome()
    bench.fetch_failed(next(iter(bench.fetching)))
    bench.conclude(tasks=1)


def test_heartbeats_come_at_the_interval_that_the_controller_tells() -> None:
    bench = ready()
    bench.pulse(0.5)
    bench.tick(0.4)
    before = len(bench.sent)
    bench.tick(0.1)
    assert bench.sent[before:] == [Heartbeat(bench.now)]


def test_a_silent_controller_is_greeted_until_it_answers() -> None:
    bench = ready()
    before = len(hellos(bench))
    for _ in range(10):
        bench.tick(1.0)
    assert len(hellos(bench)) > before + 2
    bench.finish_task()
    assert bench.payloads
    bench.conclude(tasks=2)


def test_the_next_task_waits_for_the_running_one_and_starts_when_it_ends() -> None:
    bench = ready()
    number = with_waiting(bench)
    bench.finish_task()
    assert bench.training is not None
    assert bench.training.id == number
    assert list(bench.payloads) == [1]


def test_a_worker_watches_on_until_its_own_work_is_in_a_version() -> None:
    bench = ready()
    with_waiting(bench)
    bench.finish_task()
    bench.newer(merged=0)
    assert bench.watched is not None
    bench.newer(merged=1)
    assert bench.watched is None


def test_no_more_than_two_contributions_wait_for_an_answer() -> None:
    bench = ready()
    with_waiting(bench)
    bench.finish_task()
    with_waiting(bench)
    bench.finish_task()
    assert list(bench.payloads) == [1, 2]
    assert bench.training is None
    assert bench.worker.tasks.waiting is not None
    bench.ack(1, True)
    assert bench.training is not None


def test_without_overlap_the_next_task_is_asked_for_with_the_upload() -> None:
    """Not before its end, whatever is left; the controller answers when there is a version to start from."""
    bench = ready(overlapping=False)
    assert bench.asked is None
    bench.finish_task()
    assert bench.asked == RequestTask(bench.replica)
    assert list(bench.payloads) == [1]


def test_the_lead_is_how_long_getting_a_task_takes_not_how_long_it_waits() -> None:
    """Measured at its start, asking early would make the lead grow, and that the asking earlier still."""
    bench = ready()
    for _ in range(20):
        bench.nearly()
        bench.tick(0.2)
        bench.assign()
        fetch_all(bench)
        bench.tick(0.7)  # it is here, but the other one still runs
        bench.finish_task()
        bench.ack(next(iter(bench.payloads)), True)
    assert bench.worker.tasks.lead.seconds == pytest.approx(0.2, abs=0.05)


def test_early_enough_means_in_steps() -> None:
    lead = Lead()
    assert lead.ask_at(0) == 0  # nothing is known yet, and there is no step to ask after
    assert lead.ask_at(20) == 19  # nothing is known
    lead.seconds, lead.step_seconds = 0.19, 0.1  # three steps with the margin
    assert [lead.ask_at(steps) for steps in (20, 4, 2)] == [17, 1, 0]


def test_a_task_shorter_than_the_lead_is_followed_up_as_it_starts() -> None:
    bench = ready()
    with_waiting(bench)
    bench.worker.tasks.lead.seconds, bench.worker.tasks.lead.step_seconds = 1.0, 0.1
    asked = sum(isinstance(message, RequestTask) for message in bench.sent)
    bench.finish_task()
    bench.tick(0.0)
    assert bench.training is not None
    assert sum(isinstance(message, RequestTask) for message in bench.sent) == asked + 1


def test_everything_unanswered_is_sent_again_after_a_reconnection() -> None:
    bench = ready()
    with_waiting(bench)
    bench.finish_task()
    with_waiting(bench)
    bench.finish_task()
    bench.hear(Identify())
    assert bench.hello is not None
    assert (bench.hello.pending, bench.hello.working) == ((1, 2), (3,))
    bench.welcome()  # the bench checks that both are uploaded


def test_a_task_finished_while_the_controller_is_silent_is_offered_after_the_welcome() -> None:
    bench = ready()
    bench.hear(Identify())
    bench.finish_task()
    assert list(bench.payloads) == [1]
    actions_before = len(bench.done)
    bench.welcome()
    assert len(bench.done) == actions_before


def test_work_that_runs_elsewhere_is_dropped_wherever_it_is() -> None:
    bench = ready()
    with_waiting(bench)
    bench.finish_task()
    with_waiting(bench)
    bench.hear(Identify())
    bench.welcome(forget=(1, 2, 3))
    assert bench.done == {1: False}
    assert bench.cut
    assert bench.worker.tasks.waiting is None
    bench.finish_task(steps=2)
    assert bench.done == {1: False, 2: False}
    bench.conclude(tasks=2)


def test_work_of_which_a_copy_came_first_is_left() -> None:
    """The running task is cut short, the waiting one is forgotten, and neither is submitted."""
    bench = ready()
    waiting = with_waiting(bench)
    bench.ack(waiting, False)
    assert bench.worker.tasks.waiting is None
    assert not bench.cut
    bench.ack(1, False)
    assert bench.cut
    bench.finish_task(steps=2)
    assert bench.done == {1: False}
    bench.conclude(tasks=2)


def test_a_reconnection_during_a_task_does_not_cost_the_overlap() -> None:
    bench = ready()
    bench.nearly()
    assert bench.asked is not None
    bench.hear(Identify())
    bench.welcome()
    assert bench.asked is not None
    assert bench.training is not None


def test_a_blob_that_is_gone_brings_a_new_task_but_not_at_once() -> None:
    bench = ready()
    bench.nearly()
    bench.assign(behind=3)
    before = len(hellos(bench))
    first, second, *_ = bench.fetching
    bench.fetched(first)
    bench.fetch_failed(second)
    assert not bench.fetching.keys() - {each.digest for each in SHARDS}, "what nobody will take is still fetched"
    assert first not in bench.at_hand
    assert len(hellos(bench)) == before  # a worker that keeps failing must not keep the controller busy
    bench.tick(HELLO_INTERVAL)
    assert bench.hello is not None
    assert bench.hello.working == (1,)
    bench.welcome()
    assert bench.asked == RequestTask(bench.replica)


def test_a_replica_that_does_not_match_is_replaced_by_a_snapshot() -> None:
    bench = ready()
    bench.nearly()
    bench.assign(behind=2)
    fetch_all(bench)
    bench.finish_update(good=False)
    bench.tick(HELLO_INTERVAL)
    bench.welcome()
    assert bench.asked == RequestTask(-1)
    bench.conclude(tasks=3)


def test_a_replica_ahead_of_its_task_goes_back_by_snapshot() -> None:
    bench = ready()
    bench.replica = bench.worker.incoming.have = 5
    bench.nearly()
    bench.hear(Assign(make_task(7, 3, (snapshot(3),))))
    fetch_all(bench)
    assert bench.applying == (snapshot(3),)


def test_only_the_missing_deltas_of_a_chain_are_fetched() -> None:
    bench = ready()
    bench.replica = bench.worker.incoming.have = 1
    bench.nearly()
    bench.hear(Assign(make_task(7, 3, (delta(1), delta(2), delta(3)))))
    assert {delta(2).blob.digest, delta(3).blob.digest} <= bench.fetching.keys()
    assert delta(1).blob.digest not in bench.fetching


def test_two_deltas_alike_are_one_blob() -> None:
    bench = ready()
    bench.nearly()
    alike = type(delta(1))("delta", 2, delta(1).blob, delta(2).parameters_digest)
    bench.hear(Assign(make_task(7, 2, (delta(1), alike))))
    fetch_all(bench)
    assert bench.applying == (delta(1), alike)


@pytest.mark.parametrize("on_disk", [True, False])
def test_the_downlinks_rate_counts_all_that_came_at_a_time(on_disk: bool) -> None:
    """A joiner's snapshot shares the link with its first rows: alone it would make the link look slow permanently."""
    bench = ready()
    bench.nearly()
    before = bench.now
    bench.hear(Assign(make_task(7, 3, (snapshot(3),), shard=1)))
    shard, update = SHARDS[1], snapshot(3).blob
    assert bench.fetching.keys() == {shard.digest, update.digest}
    bench.now = before + 1.0
    bench.fetched(shard.digest, on_disk=on_disk)
    bench.now = before + 2.0
    bench.fetched(update.digest)
    link = bench.worker.contact.link
    assert link.down == pytest.approx((update.num_bytes + (0 if on_disk else shard.num_bytes)) / 2.0)


@pytest.mark.parametrize("wait", [0.0, 60.0])
def test_the_time_that_an_answer_waits_for_a_standby_is_none_of_the_lines(wait: float) -> None:
    bench = ready()
    bench.finish_task()
    (number,) = bench.payloads
    outgoing = Outgoing()
    outgoing.keep(msgspec.structs.replace(bench.payloads[number], payload=Blob(digest(1), 1_000_000)))
    outgoing.go(SendPayload(number, 0), 0.0)
    actions, link = outgoing.arrived(number, LinkReport(), 2.0)
    assert actions == [act.CancelUpload()]
    assert link.up == 500_000.0
    assert number in outgoing.pending
    assert outgoing.answered(number, True, link, 2.0 + wait)[1] == link
    assert bench.worker.handle(ev.Received(SendPayload(number, EVERYTHING)), bench.now) == []
    assert number in bench.worker.outgoing.pending


@pytest.mark.parametrize("uptime", [60.0, 7000.0, 864_000.0])
def test_downloads_before_the_first_task_do_not_measure_the_downlink(uptime: float) -> None:
    """Nobody knows when the dataset's description was asked for: its bytes over the machine's uptime are no rate."""
    bench = Bench()
    bench.now += uptime
    bench.welcome()
    fetch_all(bench)
    bench.handle(ev.Fetched(digest(77), 1_000_000))
    bench.finish_preparing()
    bench.welcome()
    assert bench.sent[-1] == RequestTask(-1)
    assert bench.worker.contact.link.down == 0.0


def test_the_time_before_a_delta_is_asked_for_again_is_none_of_the_lines() -> None:
    """Two deltas alike are one blob, which is fetched again once the first is taken in."""
    rates = []
    for pause in (0.0, 60.0):
        bench = ready()
        bench.nearly()
        bench.assign(kind="evaluate")
        fetch_all(bench)
        bench.finish_task()
        assert isinstance(bench.training, Evaluate), "the replica stays as it is until this is done"
        blob = Blob(digest(55), 50_000)
        alike = [Update("delta", bench.replica + n, blob, digest(10**6 + n)) for n in (1, 2)]
        bench.watched = None
        for update in alike:
            bench.hear(Newer(News((update,))))
        bench.now += 1.0
        fetch_all(bench)
        bench.now += pause
        bench.finish_task()
        assert bench.applying == (alike[0],)
        bench.now += 1.0
        fetch_all(bench)
        rates.append(bench.worker.contact.link.down)
    assert rates[0] == rates[1] > 0.0


def test_a_task_that_names_an_unknown_shard_ends_the_worker() -> None:
    bench = ready()
    bench.nearly()
    bench.hear(Assign(make_task(7, 0, (), shard=9)))
    assert bench.quit == act.Quit("a task names the rows of file 9, but there are 3", True)


def test_an_update_that_is_the_manifests_blob_is_waited_for_as_any_other() -> None:
    bench = ready()
    bench.watched = None  # the next message is the answer
    news = (Update("snapshot", 7, MANIFEST, digest(1)),)
    bench.hear(Newer(News(news, 0, 1.0)))
    bench.fetched(MANIFEST.digest)
    assert bench.applying == news


def test_the_upload_of_task_0_ends_as_any_other() -> None:
    """A controller numbers its tasks from 1, but nothing makes it do so."""
    bench = ready()
    bench.finish_task()
    bench.ack(next(iter(bench.payloads)), True)
    bench.asked = None  # the next message is the answer
    bench.hear(Assign(make_task(0, bench.replica, ())))
    fetch_all(bench)
    bench.finish_task()
    bench.go(0, 100)
    assert any(isinstance(action, act.CancelUpload) for action in bench.hear(Ack(0, False)))


def test_a_task_cut_before_its_first_step_is_given_back() -> None:
    bench = ready()
    bench.finish_task(steps=0)
    assert bench.done == {1: False}
    assert bench.hello is not None
    assert bench.hello.working == ()


def test_a_failed_task_is_given_back_and_another_is_asked_for() -> None:
    bench = ready()
    bench.fail_task()
    assert bench.done == {}
    assert bench.hello is not None
    assert bench.hello.working == ()
    bench.conclude(tasks=2)


def test_a_worker_whose_tasks_all_fail_submits_its_results_and_leaves() -> None:
    bench = ready()
    with_waiting(bench)
    bench.finish_task()
    for failures in range(1, MOST_FAILURES + 1):
        assert bench.quit is None
        assert bench.worker.tasks.failures == failures - 1
        bench.set_up(answering=False)
        bench.fail_task()
    assert bench.quit is None
    bench.ack(1, True)
    assert bench.sent[-1] == Leave(NOT_FINITE)
    assert bench.quit == act.Quit(NOT_FINITE, False)


def test_only_failures_in_a_row_count() -> None:
    bench = ready()
    for _ in range(MOST_FAILURES):
        bench.set_up()
        bench.fail_task()
        bench.set_up()
        bench.finish_task()
    assert bench.quit is None


def test_a_leaving_worker_submits_its_work_first() -> None:
    bench = ready()
    with_waiting(bench)
    bench.leave()
    assert bench.cut
    bench.finish_task(steps=2)
    assert bench.quit is None
    bench.ack(1, True)
    assert bench.sent[-1] == Leave("asked to")
    assert bench.quit == act.Quit("asked to", True, left=True)


def test_leaving_waits_for_a_silent_controller() -> None:
    bench = ready()
    bench.hear(Identify())
    bench.leave()
    bench.finish_task(steps=2)
    bench.ack(10**6, True)
    assert bench.quit is None
    bench.conclude()
    assert bench.done == {1: True}
    assert bench.left


def test_leaving_gives_up_on_a_controller_that_is_gone() -> None:
    bench = ready()
    bench.leave()
    bench.finish_task(steps=2)
    bench.tick(PATIENCE / 2)
    bench.hear(Pulse(bench.now, 0.25, 1.2))  # a slow upload: the controller is there
    bench.tick(PATIENCE - 0.1)
    assert bench.quit is None
    bench.tick(0.1)
    assert bench.quit is not None
    assert not bench.quit.final
    assert "the work of 1 task could not be submitted" in bench.quit.reason


def test_leaving_without_work_is_no_failure_when_the_controller_is_silent() -> None:
    bench = ready()
    bench.hear(Identify())
    bench.leave()
    bench.finish_task(steps=0)
    bench.tick(PATIENCE)
    assert bench.quit == act.Quit("asked to: the controller does not answer", True, left=True)


def test_leaving_gives_up_on_a_controller_that_answers_and_never_takes_the_work() -> None:
    bench = ready()
    bench.leave()
    bench.finish_task(steps=2)
    asked_at = bench.now
    while bench.quit is None and bench.now <= asked_at + GRACE:
        bench.hear(Pulse(bench.now, 0.25, 1.2))
        bench.tick(1.0)
    assert bench.quit is not None
    assert bench.now == asked_at + GRACE
    assert bench.quit.reason == "asked to: it was not done after 50 s, and the work of 1 task could not be submitted"


def test_leaving_waits_for_no_step_that_takes_for_ever() -> None:
    bench = ready()
    bench.leave()
    asked_at = bench.now
    while bench.quit is None and bench.now <= asked_at + GRACE:
        bench.hear(Pulse(bench.now, 0.25, 1.2))
        bench.handle(ev.LeaveRequested("asked once more"))
        bench.tick(1.0)
    assert bench.quit is not None
    assert bench.now == asked_at + GRACE


def test_leaving_asks_often_whether_the_controller_is_there() -> None:
    bench = ready()
    bench.hear(Pulse(bench.now, 60.0, 300.0))  # a large fleet's intervals
    bench.leave()
    bench.finish_task(steps=2)
    bench.tick(PROBE)
    assert isinstance(bench.sent[-1], Heartbeat)


def test_leaving_before_there_was_any_work() -> None:
    bench = Bench()
    bench.handle(ev.LeaveRequested(""))
    assert bench.sent[-1] == Leave("asked to leave")
    assert bench.quit is not None


def test_a_stop_is_obeyed_at_once() -> None:
    bench = ready()
    bench.stop()
    assert bench.quit == act.Quit("the run is over", True)
    assert bench.worker.deadline == float("inf")
    assert bench.hear(Pulse(0.0, 1.0, 1.0)) == []


def test_an_answer_to_something_else_is_ignored() -> None:
    bench = ready()
    assert bench.hear(Ack(99, True)) == []
    assert bench.hear(Hello(1, 1, 1, bench.worker.profile, 0)) == []


def test_a_blob_that_is_on_its_way_is_not_asked_for_again() -> None:
    """Two versions may have equal deltas. A second answer would come for what the first was taken for."""
    incoming = Incoming()
    incoming.have = 0
    first, second = Update("delta", 1, Blob("d" * 64, 90), "1" * 64), Update("delta", 2, Blob("d" * 64, 90), "2" * 64)
    assert len(incoming.hear(News((first,), 0, 1.0))) == 1
    assert incoming.hear(News((second,), 0, 1.0)) == []
    incoming.needs.clear()
    taken = incoming.take()
    assert taken is not None
    assert [type(action) for action in taken] == [act.ApplyUpdates, act.Fetch], "and once more, for the second"


def measuring(bench: Bench, **how: int | bool) -> Evaluate:
    """Hand in the running task and have the worker measure a version next."""
    bench.nearly()
    bench.assign(kind="evaluate", **how)
    fetch_all(bench)
    bench.finish_update()
    bench.finish_task()
    bench.ack(next(iter(bench.payloads)), True)
    assert isinstance(bench.training, Evaluate)
    return bench.training


def test_a_measurement_waits_for_its_rows_and_for_its_base() -> None:
    bench = ready()
    bench.nearly()
    bench.assign(kind="evaluate", behind=1)
    held_out, way = SHARDS[2].digest, delta(1).blob.digest
    bench.finish_task()
    assert bench.training is None
    assert bench.fetching.keys() == {held_out, way}
    bench.fetched(held_out)
    assert bench.training is None
    bench.fetched(way)
    bench.finish_update()
    assert isinstance(bench.training, Evaluate)
    assert bench.replica == bench.training.base == 1


def test_the_next_task_is_asked_for_as_a_measurement_starts() -> None:
    bench = ready()
    measuring(bench)
    assert bench.asked is not None


def test_versions_wait_while_one_is_measured_and_are_taken_in_then() -> None:
    bench = ready()
    bench.nearly()
    bench.assign(kind="evaluate")
    fetch_all(bench)
    bench.newer()  # while it trains, and the measurement of the version before waits
    fetch_all(bench)
    assert not bench.applying
    bench.finish_task()
    assert isinstance(bench.training, Evaluate)
    assert not bench.applying
    bench.finish_task()
    assert bench.applying == (delta(1),)
    bench.finish_update()
    assert bench.replica == 1
    assert [type(result).__name__ for result in bench.payloads.values()] == ["Contribution", "Finding"]


def test_the_way_to_what_is_measured_comes_before_what_leads_beyond() -> None:
    bench = ready()
    bench.newer(behind=2)  # on its way when the connection is lost
    bench.hear(Identify())
    bench.welcome()
    bench.nearly()
    bench.asked = None  # the next message is the answer
    bench.hear(Assign(make_evaluation(7, 1, (delta(1),))))
    fetch_all(bench)
    assert bench.applying == (delta(1),)
    bench.finish_update()
    bench.finish_task()
    assert isinstance(bench.training, Evaluate)
    bench.finish_task()
    assert bench.applying == (delta(2),)


def test_no_news_change_what_is_measured() -> None:
    """Not even of a version before it, as a controller that has lost some would send it."""
    bench = ready()
    bench.newer(behind=3)
    fetch_all(bench)
    bench.finish_update()
    measuring(bench)
    assert bench.replica == 3
    bench.hear(Newer(News((snapshot(2),))))
    fetch_all(bench)
    assert not bench.applying
    bench.finish_task()
    assert bench.applying == (snapshot(2),)


def test_a_replica_beyond_what_is_to_be_measured_declines_the_task_and_asks_for_another() -> None:
    bench = ready()
    bench.newer(behind=2)
    fetch_all(bench)
    bench.finish_update()
    bench.nearly()
    bench.asked = None  # the next message is the answer
    bench.hear(Assign(make_evaluation(7, 1, (delta(1),))))
    fetch_all(bench)
    bench.finish_task()
    assert bench.training is None
    assert Decline(7, "this replica is at version 2 already") in bench.sent
    assert bench.asked is not None
    bench.conclude(tasks=1)


def test_leaving_interrupts_a_measurement_and_submits_nothing_of_it() -> None:
    bench = ready()
    task = measuring(bench)
    bench.leave()
    assert bench.cut
    bench.finish_task()
    assert bench.done[task.id] is False
    assert not any(isinstance(message, Offer) and message.result.assignment == task.id for message in bench.sent)
    assert bench.left


def test_a_reassigned_measurement_is_interrupted_and_the_worker_continues() -> None:
    bench = ready()
    task = measuring(bench)
    bench.hear(Identify())
    bench.welcome(forget=(task.id,))
    assert bench.cut
    bench.finish_task()
    assert bench.done[task.id] is False
    bench.conclude(tasks=2)


def test_a_flush_preempts_a_measurement() -> None:
    bench = ready()
    task = measuring(bench)
    bench.asked = None  # the next message is the answer
    bench.hear(Assign(Flush(id=7, base=bench.replica, parameters=ParameterRange(0, 100))))
    assert bench.cut
    bench.finish_task()
    assert bench.done[task.id] is False
    assert isinstance(bench.training, Flush)


def auditing(bench: Bench, **how: Any) -> Audit:
    """Submit the running task, and have the worker repeat another node's work."""
    bench.nearly()
    bench.assign(kind="audit", **how)
    for _ in range(2):  # the way to its base, then what leads back
        fetch_all(bench)
        bench.finish_update()
    bench.finish_task()
    bench.ack(next(iter(bench.payloads)), True)
    assert isinstance(bench.training, Audit)
    return bench.training


def test_deltas_for_an_audit_are_fetched_during_training() -> None:
    bench = ready()
    bench.nearly()
    bench.assign(kind="audit", behind=2, older=2)
    way = {delta(version).blob.digest for version in (1, 2)}
    assert bench.fetching.keys() == {*way, SHARDS[0].digest}
    fetch_all(bench)
    assert not bench.fetching
    bench.finish_update()
    assert bench.fetching.keys() == way, "they are used up: once more"
    assert bench.training is not None
    assert not isinstance(bench.training, Audit)
    bench.finish_task()
    assert bench.training is None
    fetch_all(bench)
    assert isinstance(bench.training, Audit)
    assert bench.replica == bench.training.base == 2


def test_versions_wait_during_an_audit() -> None:
    bench = ready()
    bench.newer(behind=2)
    fetch_all(bench)
    bench.finish_update()
    auditing(bench, older=1)
    bench.hear(Newer(News((delta(3),))))
    fetch_all(bench)
    assert not bench.applying
    bench.finish_task()
    assert bench.applying == (delta(3),)


def test_a_delta_that_is_wanted_twice_is_fetched_twice() -> None:
    """For what is taken back, and for a version that is equal to the one before."""
    bench = ready()
    bench.newer(behind=1)
    fetch_all(bench)
    bench.finish_update()
    bench.nearly()
    bench.assign(kind="audit", older=1)
    fetch_all(bench)
    again = Update("delta", 2, delta(1).blob, "2" * 64)
    bench.watched = None
    bench.hear(Newer(News((again,))))
    fetch_all(bench)
    bench.finish_task()
    assert isinstance(bench.training, Audit)
    assert bench.fetching.keys() == {again.blob.digest}
    fetch_all(bench)
    bench.finish_task()
    assert bench.applying == (again,)


def test_an_audit_without_its_deltas_is_declined() -> None:
    bench = ready()
    bench.newer(behind=2)
    fetch_all(bench)
    bench.finish_update()
    bench.nearly()
    bench.assign(kind="audit", older=2)
    bench.fetch_failed(delta(1).blob.digest)
    assert bench.fetching.keys() == {SHARDS[0].digest}, "the other delta is forgotten"
    assert [type(message) for message in bench.sent[-2:]] == [Decline, RequestTask]
    assert bench.replica == 2, "and what it has stays"


def test_giving_it_back_leaves_nothing_to_wait_for() -> None:
    """Not even a delta that is equal to one in the queue."""
    bench = ready()
    bench.newer(behind=1)
    fetch_all(bench)
    bench.finish_update()
    bench.nearly()
    bench.hear(Newer(News((Update("delta", 2, delta(2).blob, "2" * 64),))))
    fetch_all(bench)
    bench.finish_update()
    later = (Update("delta", 3, delta(1).blob, "3" * 64),)
    bench.asked = None
    bench.hear(Newer(News(later)))
    bench.hear(Assign(make_audit(9, 1, (), 1)))
    bench.finish_task()
    assert bench.worker.incoming.needs <= bench.fetching.keys(), "all that is waited for is on its way"


def test_the_time_in_which_a_version_is_taken_in_is_none_of_the_lines() -> None:
    """The worker requests the deltas back to an earlier version only after the update."""
    rates = []
    for pause in (0.0, 60.0):
        bench = ready()
        bench.nearly()
        bench.assign(kind="audit", behind=2, older=2)
        bench.now += 1.0
        fetch_all(bench)
        bench.now += pause
        bench.finish_update()
        bench.now += 1.0
        fetch_all(bench)
        rates.append(bench.worker.contact.link.down)
    assert rates[0] == rates[1] > 0.0


def test_deltas_of_an_audit_that_another_node_completed_are_forgotten() -> None:
    bench = ready()
    bench.newer(behind=2)
    fetch_all(bench)
    bench.finish_update()
    bench.nearly()
    bench.assign(kind="audit", older=2)
    bench.ack(bench.worker.tasks.waiting.id, False)  # type: ignore[union-attr]
    assert bench.fetching.keys() == {SHARDS[0].digest}
    assert not bench.worker.incoming.back


def test_an_audit_of_a_version_before_the_replica_is_declined() -> None:
    bench = ready()
    bench.newer(behind=2)
    fetch_all(bench)
    bench.finish_update()
    bench.nearly()
    bench.asked = None
    bench.hear(Assign(make_audit(9, 1, (), 1)))
    bench.finish_task()
    assert any(isinstance(message, Decline) for message in bench.sent)
    assert not bench.fetching.keys() & {delta(1).blob.digest}


def test_the_next_task_starts_while_the_update_of_the_last_one_is_encoded() -> None:
    bench = ready()
    second = with_waiting(bench)
    bench.take_steps()
    assert bench.training is not None
    assert (bench.training.id, list(bench.encoding)) == (second, [1])
    assert bench.worker.tasks.held == (1, second)
    assert not bench.payloads, "nothing is offered that is not encoded"
    bench.finish_encoding()
    assert list(bench.payloads) == [1]
    assert bench.worker.tasks.held == (second,)


def test_in_rounds_a_worker_asks_when_its_update_is_encoded() -> None:
    bench = ready(overlapping=False)
    before = len(bench.sent)
    bench.take_steps()
    assert bench.sent[before:] == []
    bench.finish_task()
    assert [type(message) for message in bench.sent[before:]] == [RequestTask]
    assert list(bench.payloads) == [1]


def test_a_third_task_waits_until_the_first_update_is_encoded() -> None:
    bench = ready()
    with_waiting(bench)
    bench.take_steps()
    third = with_waiting(bench)
    bench.take_steps()
    assert (len(bench.encoding), bench.training) == (2, None)
    bench.finish_encoding()
    assert bench.training is not None
    assert bench.training.id == third


def test_a_leaving_worker_waits_for_an_update_that_is_encoded() -> None:
    bench = ready()
    bench.take_steps()
    bench.leave()
    assert bench.quit is None
    bench.finish_encoding()
    assert (bench.quit, list(bench.payloads)) == (None, [1])
    bench.ack(1, True)
    assert bench.quit == act.Quit("asked to", True, left=True)


def test_an_update_that_is_encoded_as_the_run_ends_goes_into_the_submitted_residual() -> None:
    bench = ready()
    bench.take_steps()
    bench.hear(Assign(Flush(id=50, base=bench.replica, parameters=ParameterRange(0, 100))))
    assert bench.training is None
    bench.finish_encoding()
    assert isinstance(bench.training, Flush)
    assert not bench.payloads


def test_an_update_that_another_node_made_first_is_dropped_once_it_is_encoded() -> None:
    bench = ready()
    with_waiting(bench)
    bench.take_steps()
    bench.ack(1, False)
    assert 1 not in bench.worker.tasks.held
    bench.finish_encoding()
    assert not bench.payloads
    assert bench.training is not None


def test_an_update_that_cannot_be_encoded_is_a_failure_and_the_next_task_runs_on() -> None:
    bench = ready()
    second = with_waiting(bench)
    bench.take_steps()
    bench.fail_task()
    assert bench.worker.tasks.failures == 1
    assert bench.training is not None
    assert bench.training.id == second
    bench.finish_task()
    assert bench.worker.tasks.failures == 0


def test_a_task_that_began_before_a_failure_was_known_counts_with_it() -> None:
    bench = ready()
    with_waiting(bench)
    bench.take_steps()
    bench.fail_task()
    assert bench.training is not None
    bench.fail_task()
    assert bench.worker.tasks.failures == 1
    bench.conclude(tasks=2)
