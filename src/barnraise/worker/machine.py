"""A worker as a state machine: events in, actions out. No clock, socket, file or tensor.

It keeps one task running, at most one more waiting, and at most two finished ones unanswered. With overlap it asks
for the next task when the running one is nearly done, early enough that rows and updates are at hand when it ends, and
it watches for versions, which the running task takes in.
Silence from the controller is answered with `Hello` until it speaks again; whatever has no answer is sent again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from barnraise.core.errors import DIVERGED
from barnraise.core.types import Blob, Contribution, LinkReport, NodeProfile, Task
from barnraise.wire.messages import (
    PROTOCOL_VERSION,
    Ack,
    Assign,
    Go,
    Heartbeat,
    Hello,
    Leave,
    Message,
    Newer,
    Next,
    Pulse,
    Stop,
    Watch,
    Welcome,
    Who,
)
from barnraise.worker import measure
from barnraise.worker.actions import (
    Action,
    ApplyUpdates,
    CutShort,
    Fetch,
    Prepare,
    Quit,
    Send,
    Settle,
    StartTask,
)
from barnraise.worker.ahead import Lead
from barnraise.worker.events import (
    Event,
    Fetched,
    FetchFailed,
    LeaveRequested,
    Nearly,
    Prepared,
    Received,
    TaskDone,
    TaskFailed,
    Tick,
    Updated,
)
from barnraise.worker.incoming import Incoming
from barnraise.worker.leaving import PROBE, farewell, gives_up_at
from barnraise.worker.outgoing import Outgoing

HELLO_INTERVAL = 1.0
"""Seconds between attempts to reach a silent controller."""

MOST_FAILURES = 3
"""After so many failed tasks, one after the other, the worker goes."""

NOT_FINITE = (
    f"{DIVERGED}: {MOST_FAILURES} tasks in a row ended in numbers that are not finite; "
    "lower the learning rate, or raise warmup_tokens"
)


class Worker:
    """One worker of one run. `session` tells this process from an earlier one of the same name."""

    def __init__(self, session: int, profile: NodeProfile = NodeProfile()) -> None:  # noqa: B008 (frozen)
        self.session, self.profile = session, profile
        self.welcome: Welcome | None = None
        self.greeting, self.greeted = 0, False  # the last Hello's number, and whether it was answered
        self.ready = False
        self.shards: tuple[Blob, ...] = ()
        self.incoming, self.outgoing = Incoming(), Outgoing()
        self.running: Task | None = None
        self.waiting: Task | None = None
        self.watching = False
        self.near = False  # the end of the running task: time to ask for the next
        self.dropped: set[int] = set()  # running work that turned out to be somebody else's by now
        self.asked_at = math.inf
        self.link = LinkReport()
        self.fetched_at, self.fetched_bytes = 0.0, 0  # since when blobs are on their way, and what has come of them
        self.lead = Lead()
        self.failures = 0  # tasks that failed since one did not
        self.leaving, self.leaving_since = "", math.inf
        self.quit = False
        self.heartbeat, self.lease = 1.0, 10.0
        self.last_sent = self.last_heard = -math.inf

    @property
    def deadline(self) -> float:
        """When the machine wants a `Tick`, in its own time."""
        if self.quit:
            return math.inf
        interval = self.heartbeat if self.greeted else HELLO_INTERVAL
        if not self.leaving:
            return self.last_sent + interval
        return min(self.last_sent + min(interval, PROBE), gives_up_at(self.leaving_since, self.last_heard))

    def start(self, now: float) -> list[Action]:
        self.last_heard = now
        return [self._hello(now)]

    def handle(self, event: Event, now: float) -> list[Action]:
        """What to do about `event` at `now` seconds."""
        if self.quit:
            return []
        return _HANDLE[type(event)](self, event, now)

    # The connection

    def _send(self, message: Message, now: float) -> Send:
        self.last_sent = now
        return Send(message)

    def _hello(self, now: float) -> Action:
        """Greet, or repeat the greeting that has no answer yet: its number stays, or on a slow link every answer would
        come too late."""
        self.asked_at = math.inf
        if self.greeted or not self.greeting:
            self.greeting, self.greeted = self.greeting + 1, False
        working = tuple(task.id for task in (self.running, self.waiting) if task and task.id not in self.dropped)
        state = self.profile, self.incoming.have, tuple(self.outgoing.pending), working
        return self._send(Hello(PROTOCOL_VERSION, self.session, self.greeting, *state), now)

    def _tick(self, event: Tick, now: float) -> list[Action]:
        if now < self.deadline:
            return []
        if self.leaving and now >= gives_up_at(self.leaving_since, self.last_heard):
            lost = len(self.outgoing.pending) + (self.running is not None)
            farewells = [] if lost else [self._send(Leave(self.leaving), now)]
            return [*farewells, *self._quit(farewell(self.leaving, lost), not lost and self.failures < MOST_FAILURES)]
        if not self.greeted or now - self.last_heard > self.lease:
            return [self._hello(now)]
        return [*self.outgoing.overdue(now), self._send(Heartbeat(now), now)]

    def _received(self, event: Received, now: float) -> list[Action]:
        self.last_heard = now
        handler = _MESSAGES.get(type(event.message))
        return handler(self, event.message, now) if handler else []

    def _pulse(self, message: Pulse, now: float) -> list[Action]:
        self.heartbeat, self.lease = message.heartbeat, message.lease
        self.link = measure.round_trip(self.link, now - message.sent)
        return []

    def _who(self, message: Who, now: float) -> list[Action]:
        return [self._hello(now)] if self.greeted else []

    def _on_welcome(self, message: Welcome, now: float) -> list[Action]:
        if message.greeting != self.greeting or self.greeted:
            return []
        known = self.welcome
        self.welcome, self.greeted, self.watching = message, True, False
        self.heartbeat, self.lease = message.heartbeat, message.lease
        if known is None:
            return [Fetch(message.manifest)]
        actions: list[Action] = []
        for assignment in message.forget:
            if assignment in self.outgoing.pending:
                actions += self.outgoing.forget(assignment)
            elif self.waiting is not None and self.waiting.id == assignment:
                self.waiting = None
                self.incoming.forget_task()
            elif self.running is not None and self.running.id == assignment:
                self.dropped.add(assignment)
                actions.append(CutShort())
        return actions + self.outgoing.greeted(now) + self._go_on(now)

    def _stop(self, message: Stop, now: float) -> list[Action]:
        return self._quit(message.reason, message.final)

    def _quit(self, reason: str, final: bool) -> list[Action]:
        self.quit = True
        return [Quit(reason, final)]

    # Work

    def _on_fetched(self, event: Fetched, now: float) -> list[Action]:
        assert self.welcome is not None
        if not self.ready and event.digest == self.welcome.manifest.digest:
            return [Prepare(self.welcome.manifest, self.welcome.settings)]
        self.incoming.needs.discard(event.digest)
        self.fetched_bytes += event.num_bytes
        if not self.incoming.needs:
            self.link = measure.downloaded(self.link, self.fetched_bytes, now - self.fetched_at)
            self.fetched_at, self.fetched_bytes = now, 0
        return self._bring_up_to_date(now)

    def _fetch_failed(self, event: FetchFailed, now: float) -> list[Action]:
        if not self.ready and self.welcome is not None and event.digest == self.welcome.manifest.digest:
            self.welcome = None
        elif event.digest not in self.incoming.needs:
            return []
        return self._give_up_waiting(now)

    def _give_up_waiting(self, now: float) -> list[Action]:
        """Greet anew, without the task that waits: it is for others, or comes again with a way that works.

        The next Tick does, so that whatever keeps failing is tried once a second at most.
        """
        self.waiting = None
        self.incoming.forget()
        self.asked_at = math.inf
        if self.greeted:
            self.greeting, self.greeted = self.greeting + 1, False
        return []

    def _prepared(self, event: Prepared, now: float) -> list[Action]:
        self.ready, self.shards, self.profile = True, event.shards, event.profile
        return [self._hello(now)]

    def _assign(self, message: Assign, now: float) -> list[Action]:
        task = message.task
        if task.kind == "flush":
            return self._flush(task, now)
        if self.greeted and self.waiting is not None and self.waiting.id != task.id:
            return [self._hello(now)]  # one too many (a Next came twice): the controller learns what is held
        known = self.waiting is not None or (self.running is not None and self.running.id == task.id)
        if known or task.id in self.outgoing.pending or not self.ready or not self.greeted or self.leaving:
            return []
        self.waiting = task
        if (last := max((piece.shard for piece in task.rows), default=0)) >= len(self.shards):
            return self._quit(f"a task names token shard {last}, but there are {len(self.shards)}", True)
        shards = [self.shards[piece.shard] for piece in task.rows]
        return self._hear(ApplyUpdates(task.updates, task.merged, task.share), now) + self.incoming.get(shards)

    def _on_newer(self, message: Newer, now: float) -> list[Action]:
        """Take a version in, also into the task that runs."""
        if not self.ready or not self.greeted or self.leaving:
            return []
        self.watching = False
        again = self._watch(now) if message.merged < self.outgoing.newest else []
        return again + self._hear(ApplyUpdates(message.updates, message.merged, message.share), now)

    def _hear(self, news: ApplyUpdates, now: float) -> list[Action]:
        if not self.incoming.needs:
            self.fetched_at, self.fetched_bytes = now, 0
        return self.incoming.hear(news)

    def _watch(self, now: float) -> list[Action]:
        """Ask to be told of the next version: once a task, and on until its own work is in one. No more than that, as a
        slow node's link is not for every version."""
        overlap = self.welcome is not None and self.welcome.settings.overlap
        training = self.running is not None and self.running.kind == "train" and not self.leaving
        if not overlap or not training or self.watching or not self.greeted:
            return []
        self.watching = True
        return [self._send(Watch(self.incoming.have), now)]

    def _flush(self, task: Task, now: float) -> list[Action]:
        """The run ends: what is running goes into the residual, and that is handed in."""
        running = self.running.id if self.running is not None else -1
        if task.id == running or task.id in self.outgoing.pending or not self.ready or not self.greeted or self.leaving:
            return []
        self.waiting = task
        self.incoming.forget()
        settled: list[Action] = []
        for number, contribution in list(self.outgoing.pending.items()):
            if not contribution.steps:  # a residual, asked for once more: the controller does not wait for it any more
                settled += self.outgoing.forget(number)
        if self.running is None:
            return settled + self._go_on(now)
        self.dropped.add(running)
        return [*settled, CutShort()]

    def _bring_up_to_date(self, now: float) -> list[Action]:
        actions = self.incoming.take()
        return self._give_up_waiting(now) if actions is None else actions + self._go_on(now)

    def _updated(self, event: Updated, now: float) -> list[Action]:
        self.incoming.updating, self.incoming.have = False, event.version
        if event.version < 0:
            return self._give_up_waiting(now)
        return self._bring_up_to_date(now)

    def _go_on(self, now: float) -> list[Action]:
        """Start what waits, ask when there is nothing, leave when all is handed in."""
        if self.asked_at < math.inf and self._at_hand():
            self.lead.waited(now - self.asked_at)
            self.asked_at = math.inf
        if not self.ready or not self.greeted or self.welcome is None:
            return []
        if self.running is not None:
            return self._ask(now) if self.near else []
        if self.leaving:
            return [] if self.outgoing.pending else self._leave(now)
        task = self.waiting
        if task is None:
            return self._ask(now)
        if not self._at_hand() or (len(self.outgoing.pending) > 1 and task.kind == "train"):
            return []
        never = task.kind == "flush" or not self.welcome.settings.overlap
        ask_at = task.local_steps + 1 if never else self.lead.ask_at(task.local_steps)
        self.running, self.waiting, self.near = task, None, ask_at == 0
        return [StartTask(task, ask_at), *self._watch(now), *(self._ask(now) if self.near else [])]

    def _at_hand(self) -> bool:
        """Whether the waiting task could start: its rows are here, and the replica is at its base."""
        task = self.waiting
        if task is None or self.incoming.updating:
            return False
        if task.kind == "flush":
            return True
        rows = {self.shards[piece.shard].digest for piece in task.rows}
        return self.incoming.have >= task.base and not rows & self.incoming.needs

    def _ask(self, now: float) -> list[Action]:
        if self.asked_at < math.inf or self.waiting is not None or self.incoming.updating or self.leaving:
            return []
        self.asked_at = now
        return [self._send(Next(self.incoming.have, self.link), now)]

    def _nearly(self, event: Nearly, now: float) -> list[Action]:
        self.near = self.running is not None and self.running.id == event.assignment
        return self._go_on(now)

    def _task_done(self, event: TaskDone, now: float) -> list[Action]:
        task, self.running = self.running, None
        assert task is not None
        assert task.id == event.assignment
        self.lead.trained(event.steps, event.seconds)
        self.failures = 0 if event.steps else self.failures
        if task.id in self.dropped:
            self.dropped.discard(task.id)
            return [Settle(task.id, False), *self._go_on(now)]
        if not event.steps and task.kind == "train":  # the controller must know that it is not coming
            return [Settle(task.id, False), *(self._go_on(now) if self.leaving else [self._hello(now)])]
        contribution = Contribution(
            task.id, task.base, task.parameters, event.payload, event.steps, event.loss, event.seconds, event.codec
        )
        if self.greeted:
            return self.outgoing.add(contribution, now) + self._go_on(now)
        self.outgoing.keep(contribution)  # the Welcome will bring it about
        return self._go_on(now)

    def _task_failed(self, event: TaskFailed, now: float) -> list[Action]:
        """There is nothing to hand in: the Hello says so."""
        task, self.running = self.running, None
        assert task is not None
        self.dropped.discard(task.id)
        self.failures += 1
        if self.failures == MOST_FAILURES:
            return self._leave_requested(LeaveRequested(NOT_FINITE), now)
        return self._go_on(now) if self.leaving else [self._hello(now)]

    def _go(self, message: Go, now: float) -> list[Action]:
        return self.outgoing.go(message, now) if self.greeted else []

    def _ack(self, message: Ack, now: float) -> list[Action]:
        actions, self.link = self.outgoing.answered(message.assignment, message.accepted, self.link, now)
        return actions + self._go_on(now) if actions else []

    def _leave_requested(self, event: LeaveRequested, now: float) -> list[Action]:
        self.leaving, self.leaving_since = event.reason or "asked to leave", now
        self.waiting = None
        self.incoming.forget()
        if not self.ready:
            return self._leave(now)
        return [CutShort()] if self.running is not None else self._go_on(now)

    def _leave(self, now: float) -> list[Action]:
        return [self._send(Leave(self.leaving), now), *self._quit(self.leaving, self.failures < MOST_FAILURES)]


_HANDLE: dict[type[Event], Callable[[Worker, Any, float], list[Action]]] = {
    Received: Worker._received,
    Fetched: Worker._on_fetched,
    FetchFailed: Worker._fetch_failed,
    Prepared: Worker._prepared,
    Updated: Worker._updated,
    Nearly: Worker._nearly,
    TaskDone: Worker._task_done,
    TaskFailed: Worker._task_failed,
    Tick: Worker._tick,
    LeaveRequested: Worker._leave_requested,
}

_MESSAGES: dict[type[Message], Callable[[Worker, Any, float], list[Action]]] = {
    Welcome: Worker._on_welcome,
    Pulse: Worker._pulse,
    Who: Worker._who,
    Assign: Worker._assign,
    Newer: Worker._on_newer,
    Go: Worker._go,
    Ack: Worker._ack,
    Stop: Worker._stop,
}
