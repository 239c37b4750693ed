"""A worker as a state machine: events in, actions out. No clock, socket, file or tensor.

It keeps one task running, at most one more waiting, and at most two finished ones unanswered. With overlap it asks
for the next task when the running one is nearly done, early enough that rows and updates are at hand when it ends.
Silence from the controller is answered with `Hello` until it speaks again; whatever has no answer is sent again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from barnraise.core.types import Blob, Contribution, NodeProfile, Task, Update
from barnraise.wire.messages import (
    PROTOCOL_VERSION,
    Ack,
    Assign,
    Heartbeat,
    Hello,
    Leave,
    Message,
    Next,
    Pulse,
    Stop,
    Welcome,
    Who,
)
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
    Upload,
)
from barnraise.worker.events import (
    Event,
    Fetched,
    FetchFailed,
    LeaveRequested,
    Nearly,
    Prepared,
    Received,
    TaskDone,
    Tick,
    Updated,
)

HELLO_INTERVAL = 1.0
"""Seconds between attempts to reach a silent controller."""

LEAD_MARGIN = 1.5
"""The next task is asked for this many times earlier than getting one usually takes."""


class Worker:
    """One worker of one run. `session` tells this process from an earlier one of the same name."""

    def __init__(self, session: int, profile: NodeProfile = NodeProfile()) -> None:  # noqa: B008 (frozen)
        self.session, self.profile = session, profile
        self.welcome: Welcome | None = None
        self.greeting, self.greeted = 0, False  # the last Hello's number, and whether it was answered
        self.ready = False
        self.shards: tuple[Blob, ...] = ()
        self.have = -1
        self.running: Task | None = None
        self.waiting: Task | None = None
        self.needs: set[str] = set()
        self.updating = False
        self.near = False  # the end of the running task: time to ask for the next
        self.dropped: set[int] = set()  # running work that turned out to be somebody else's by now
        self.pending: dict[int, Contribution] = {}
        self.asked_at = math.inf
        self.lead = 0.05
        self.step_seconds = 0.0
        self.leaving = ""
        self.quit = False
        self.heartbeat, self.lease = 1.0, 10.0
        self.last_sent = self.last_heard = -math.inf

    @property
    def deadline(self) -> float:
        """When the machine wants a `Tick`, in its own time."""
        if self.quit:
            return math.inf
        return self.last_sent + (self.heartbeat if self.greeted else HELLO_INTERVAL)

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
        return self._send(
            Hello(
                PROTOCOL_VERSION,
                self.session,
                self.greeting,
                self.profile,
                self.have,
                tuple(self.pending),
                working,
            ),
            now,
        )

    def _tick(self, event: Tick, now: float) -> list[Action]:
        if now < self.deadline:
            return []
        if not self.greeted or now - self.last_heard > self.lease:
            return [self._hello(now)]
        return [self._send(Heartbeat(now), now)]

    def _received(self, event: Received, now: float) -> list[Action]:
        self.last_heard = now
        return _MESSAGES.get(type(event.message), Worker._ignore)(self, event.message, now)

    def _ignore(self, message: Message, now: float) -> list[Action]:
        return []

    def _pulse(self, message: Pulse, now: float) -> list[Action]:
        self.heartbeat, self.lease = message.heartbeat, message.lease
        return []

    def _who(self, message: Who, now: float) -> list[Action]:
        return [self._hello(now)] if self.greeted else []

    def _on_welcome(self, message: Welcome, now: float) -> list[Action]:
        if message.greeting != self.greeting or self.greeted:
            return []
        known = self.welcome
        self.welcome, self.greeted = message, True
        self.heartbeat, self.lease = message.heartbeat, message.lease
        if known is None:
            return [Fetch(message.manifest)]
        actions: list[Action] = []
        for assignment in message.forget:
            if self.pending.pop(assignment, None):
                actions.append(Settle(assignment, False))
            elif self.waiting is not None and self.waiting.id == assignment:
                self.waiting, self.needs = None, set()
            elif self.running is not None and self.running.id == assignment:
                self.dropped.add(assignment)
                actions.append(CutShort())
        actions.extend(Upload(contribution) for contribution in self.pending.values())
        return actions + self._go_on(now)

    def _stop(self, message: Stop, now: float) -> list[Action]:
        return self._quit(message.reason, message.final)

    def _quit(self, reason: str, final: bool) -> list[Action]:
        self.quit = True
        return [Quit(reason, final)]

    # Work

    def _on_fetched(self, event: Fetched, now: float) -> list[Action]:
        assert self.welcome is not None
        if event.digest == self.welcome.manifest.digest:
            return [] if self.ready else [Prepare(self.welcome.manifest, self.welcome.settings)]
        self.needs.discard(event.digest)
        return self._bring_up_to_date(now)

    def _fetch_failed(self, event: FetchFailed, now: float) -> list[Action]:
        if not self.ready and self.welcome is not None and event.digest == self.welcome.manifest.digest:
            self.welcome = None
        elif self.waiting is None or event.digest not in self.needs:
            return []
        return self._give_up_waiting(now)

    def _give_up_waiting(self, now: float) -> list[Action]:
        """Greet anew, without the task that waits: it is for others, or comes again with a way that works.

        The next Tick does, so that whatever keeps failing is tried once a second at most.
        """
        self.waiting, self.needs = None, set()
        self.asked_at = math.inf
        if self.greeted:
            self.greeting, self.greeted = self.greeting + 1, False
        return []

    def _prepared(self, event: Prepared, now: float) -> list[Action]:
        self.ready, self.shards, self.profile = True, event.shards, event.profile
        return [self._hello(now)]

    def _assign(self, message: Assign, now: float) -> list[Action]:
        task = message.task
        if self.greeted and self.waiting is not None and self.waiting.id != task.id:
            return [self._hello(now)]  # one too many (a Next came twice): the controller learns what is held
        known = self.waiting is not None or (self.running is not None and self.running.id == task.id)
        if known or task.id in self.pending or not self.ready or not self.greeted or self.leaving:
            return []
        self.waiting = task
        blobs = {update.blob.digest: update.blob for update in self._missing(task)}
        for piece in task.rows:
            if piece.shard >= len(self.shards):
                return self._quit(f"a task names token shard {piece.shard}, but there are {len(self.shards)}", True)
            blobs[self.shards[piece.shard].digest] = self.shards[piece.shard]
        self.needs = set(blobs)
        return [Fetch(blob) for blob in blobs.values()]

    def _missing(self, task: Task) -> tuple[Update, ...]:
        """What leads the replica to the task's base."""
        if self.have == task.base:
            return ()
        return tuple(update for update in task.updates if update.kind == "snapshot" or update.version > self.have)

    def _bring_up_to_date(self, now: float) -> list[Action]:
        task = self.waiting
        if task is None or self.needs or self.updating:
            return []
        updates = self._missing(task)
        if not updates:
            return self._go_on(now)
        self.updating = True
        return [ApplyUpdates(updates)]

    def _updated(self, event: Updated, now: float) -> list[Action]:
        self.updating, self.have = False, event.version
        failed = self.waiting is not None and event.version != self.waiting.base
        return self._give_up_waiting(now) if failed else self._go_on(now)

    def _go_on(self, now: float) -> list[Action]:
        """Start what waits, ask when there is nothing, leave when all is handed in."""
        if self.asked_at < math.inf and self._at_hand():
            self.lead += 0.3 * (now - self.asked_at - self.lead)
            self.asked_at = math.inf
        if not self.ready or not self.greeted or self.welcome is None:
            return []
        if self.running is not None:
            return self._ask(now) if self.near else []
        if self.leaving:
            return [] if self.pending else self._leave(now)
        task = self.waiting
        if task is None:
            may_ask = self.welcome.settings.overlap or not self.pending
            return self._ask(now) if may_ask else []
        if not self._at_hand() or len(self.pending) > 1:
            return []
        self.running, self.waiting, self.near = task, None, False
        return [StartTask(task, self._ask_at(task))]

    def _at_hand(self) -> bool:
        """Whether the waiting task could start: its rows are here, and the replica is at its base."""
        return self.waiting is not None and not self.needs and not self.updating and self.have == self.waiting.base

    def _ask_at(self, task: Task) -> int:
        assert self.welcome is not None
        if not self.welcome.settings.overlap:
            return task.local_steps + 1
        if self.step_seconds <= 0.0:
            return max(1, task.local_steps - 1)
        early = math.ceil(LEAD_MARGIN * self.lead / self.step_seconds)
        return max(1, task.local_steps - max(1, early))

    def _ask(self, now: float) -> list[Action]:
        if self.asked_at < math.inf or self.waiting is not None or self.updating or self.leaving:
            return []
        self.asked_at = now
        return [self._send(Next(self.have), now)]

    def _nearly(self, event: Nearly, now: float) -> list[Action]:
        self.near = self.running is not None and self.running.id == event.assignment
        return self._go_on(now)

    def _task_done(self, event: TaskDone, now: float) -> list[Action]:
        task, self.running = self.running, None
        assert task is not None
        assert task.id == event.assignment
        if event.steps:
            self.step_seconds = event.seconds / event.steps
        if task.id in self.dropped:
            self.dropped.discard(task.id)
            return [Settle(task.id, False), *self._go_on(now)]
        if not event.steps:  # the controller must know that it is not coming
            return [Settle(task.id, False), *(self._go_on(now) if self.leaving else [self._hello(now)])]
        contribution = Contribution(
            task.id, task.base, task.parameters, event.payload, event.steps, event.loss, event.seconds
        )
        self.pending[task.id] = contribution
        upload: list[Action] = [Upload(contribution)] if self.greeted else []  # else the Welcome will bring it about
        return upload + self._go_on(now)

    def _ack(self, message: Ack, now: float) -> list[Action]:
        if self.pending.pop(message.assignment, None) is None:
            return []
        return [Settle(message.assignment, message.accepted), *self._go_on(now)]

    def _leave_requested(self, event: LeaveRequested, now: float) -> list[Action]:
        self.leaving = event.reason or "asked to leave"
        self.waiting, self.needs = None, set()
        if not self.ready:
            return self._leave(now)
        return [CutShort()] if self.running is not None else self._go_on(now)

    def _leave(self, now: float) -> list[Action]:
        return [self._send(Leave(self.leaving), now), *self._quit(self.leaving, True)]


_HANDLE: dict[type[Event], Callable[[Worker, Any, float], list[Action]]] = {
    Received: Worker._received,
    Fetched: Worker._on_fetched,
    FetchFailed: Worker._fetch_failed,
    Prepared: Worker._prepared,
    Updated: Worker._updated,
    Nearly: Worker._nearly,
    TaskDone: Worker._task_done,
    Tick: Worker._tick,
    LeaveRequested: Worker._leave_requested,
}

_MESSAGES: dict[type[Message], Callable[[Worker, Any, float], list[Action]]] = {
    Welcome: Worker._on_welcome,
    Pulse: Worker._pulse,
    Who: Worker._who,
    Assign: Worker._assign,
    Ack: Worker._ack,
    Stop: Worker._stop,
}
