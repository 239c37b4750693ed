"""A worker as a state machine: events in, actions out.

No clock, socket, file or tensor. It keeps one task running, at most one more waiting, and starts none while two
finished ones are unanswered, or the updates of two are not encoded. Silence of the controller is answered with `Hello`
until it speaks again; unanswered messages are sent again. Its parts: `Contact` (the connection), `Tasks` (the work),
`Incoming` (versions) and `Outgoing` (results).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from barnraise.core.errors import DIVERGED
from barnraise.core.sites import OwnRows
from barnraise.core.types import KINDS, NodeProfile, Telemetry
from barnraise.wire.messages import (
    EVERYTHING,
    PROTOCOL_VERSION,
    Ack,
    Assign,
    Decline,
    Heartbeat,
    Hello,
    Identify,
    Included,
    Leave,
    Message,
    Newer,
    Pulse,
    SendPayload,
    Stop,
    Welcome,
)
from barnraise.worker import proofs
from barnraise.worker.actions import Action, Fetch, Prepare, Quit
from barnraise.worker.contact import HELLO_INTERVAL, Contact
from barnraise.worker.events import (
    Event,
    Fetched,
    FetchFailed,
    LeaveRequested,
    Measured,
    Nearly,
    Prepared,
    ProofChecked,
    Received,
    TaskDone,
    TaskFailed,
    Tick,
    Trained,
    Updated,
)
from barnraise.worker.incoming import Incoming
from barnraise.worker.leaving import PATIENCE, PROBE, farewell, gives_up_at
from barnraise.worker.outgoing import Outgoing
from barnraise.worker.row_files import RowFiles
from barnraise.worker.tasks import Tasks

MOST_FAILURES = 3
"""Consecutive failed tasks after which the worker leaves."""

NOT_FINITE = (
    f"{DIVERGED}: {MOST_FAILURES} tasks in a row ended in numbers that are not finite; "
    "lower the learning rate, or raise warmup_tokens"
)


class Worker:
    """One worker of one run.

    `session` tells this process from an earlier one of the same name; `kinds` of tasks are those it accepts. `ends` is
    the time at which its owner wants it back, on the machine's clock.
    """

    def __init__(
        self,
        session: int,
        profile: NodeProfile = NodeProfile(),  # noqa: B008 (frozen)
        kinds: tuple[str, ...] = tuple(KINDS),
    ) -> None:
        self.profile, self.kinds, self.contact = profile, kinds, Contact(session)
        self.incoming, self.outgoing = Incoming(), Outgoing()
        self.tasks = Tasks(self.contact, self.incoming, self.outgoing, self._hello, kinds)
        self.ends = math.inf
        self.own: OwnRows | None = None  # where rows stay with their nodes
        self.leaving, self.leaving_since = "", math.inf
        self.quit = self.over = False  # whether the worker is done, and whether the run is

    @property
    def reads_model(self) -> bool:
        """Return whether any of its kinds of tasks reads the model or rows: a trustee's read neither."""
        return any(KINDS[name].replica for name in self.kinds if name in KINDS)

    @property
    def ready(self) -> bool:
        """Return whether model and data are ready."""
        return self.tasks.files is not None

    @property
    def deadline(self) -> float:
        """Return when the machine needs a `Tick`, on its own clock."""
        if self.quit:
            return math.inf
        contact = self.contact
        interval = contact.heartbeat if contact.greeted else HELLO_INTERVAL
        if not self.leaving:
            return contact.last_sent + interval
        return min(contact.last_sent + min(interval, PROBE), self._gives_up_at)

    @property
    def _gives_up_at(self) -> float:
        return gives_up_at(self.leaving_since, self.contact.last_heard)

    def start(self, now: float) -> list[Action]:
        self.contact.last_heard = now
        return [self._hello(now)]

    def handle(self, event: Event, now: float) -> list[Action]:
        """Return the actions for `event` at `now` seconds."""
        if self.quit:
            return []
        actions = _HANDLE[type(event)](self, event, now)
        if not (actions and type(actions[-1]) is Quit) and self.leaving and self._has_handed_in():
            actions += self._leave(now)
        if actions and type(actions[-1]) is Quit:
            self.quit = True
            actions[-1:-1] = proofs.summed_up(self.tasks.tally)
        return actions

    # The connection

    def _hello(self, now: float) -> Action:
        """Greet, with the state and the kinds of tasks."""
        self.tasks.greeting()
        number, pending = self.contact.greet(), tuple(self.outgoing.pending)
        held = self.incoming.have, pending, self.tasks.held
        about = PROTOCOL_VERSION, self.contact.session, number, self.profile
        lent = max(0.0, self.ends - now) if self.ends < math.inf else 0.0
        greeting = Hello(*about, *held, kinds=self.kinds, term=self.contact.term, lent=lent, own=self.own)
        return self.contact.send(greeting, now)

    def _tick(self, event: Tick, now: float) -> list[Action]:
        if now < self.deadline:
            return []
        if self.leaving and now >= self._gives_up_at:
            lost = len(self.outgoing.pending) + self.tasks.num_begun
            farewells = [] if lost else [self.contact.send(Leave(self.leaving), now)]
            silent = now - self.contact.last_heard >= PATIENCE
            final = not lost and self.tasks.failures < MOST_FAILURES
            return [*farewells, Quit(farewell(self.leaving, lost, silent=silent), final, left=final)]
        given_up = self.tasks.give_up() if self.tasks.unanswered(now) else []
        if self.contact.silent(now):
            return [*given_up, self._hello(now)]
        beat = self.contact.send(Heartbeat(now), now)
        overdue = self.outgoing.overdue(now, self.contact.link) if self.outgoing.pending else []
        return [*given_up, *overdue, beat]

    def _measured(self, event: Measured, now: float) -> list[Action]:
        """Send the machine's load to the controller."""
        if not self.contact.greeted:
            return []
        lead = self.tasks.lead
        measured = lead.tokens_per_second, lead.step_seconds, event.overhead
        telemetry = Telemetry(event.load, self.contact.link, *measured)
        return [self.contact.send(Heartbeat(now, telemetry), now)]

    def _received(self, event: Received, now: float) -> list[Action]:
        self.contact.last_heard = now
        message = event.message
        handler = _MESSAGES.get(type(message))
        return handler(self, message, now) if handler else []

    def _pulse(self, message: Pulse, now: float) -> list[Action]:
        self.contact.pulse(message, now)
        return []

    def _who(self, message: Identify, now: float) -> list[Action]:
        return [self._hello(now)] if self.contact.greeted else []

    def _welcomed(self, message: Welcome, now: float) -> list[Action]:
        first, term = self.contact.welcome is None, self.contact.term
        if not self.contact.welcomed(message):
            return []
        if first and not self.reads_model:
            return [Prepare(message.manifest, message.settings)]
        if first:
            return [Fetch(message.manifest)]
        self.incoming.welcomed(message.version, message.digest)
        if self.contact.term.rank != term.rank:
            return self.tasks.another_controller(message, now)
        return self.tasks.welcomed(message.forget, now)

    def _stop(self, message: Stop, now: float) -> list[Action]:
        self.over = message.final
        return [Quit(message.reason, message.final, refusal=message.refusal)]

    # Preparation

    def _fetched(self, event: Fetched, now: float) -> list[Action]:
        welcome = self.contact.welcome
        if not self.ready and welcome is not None and event.digest == welcome.manifest.digest:
            return [Prepare(welcome.manifest, welcome.settings)]
        return self.tasks.fetched(event, now)

    def _fetch_failed(self, event: FetchFailed, now: float) -> list[Action]:
        welcome = self.contact.welcome
        if not self.ready and welcome is not None and event.digest == welcome.manifest.digest:
            self.contact.welcome = None
        elif event.digest not in self.incoming.needs:
            return []
        return self.tasks.gone(event.digest, now)

    def _prepared(self, event: Prepared, now: float) -> list[Action]:
        own, self.profile = event.own, event.profile
        self.own, silent = own, own is not None and own.losses == "off"
        self.tasks.files = RowFiles(event.files, own=own is not None, silent=silent)
        self.tasks.limits, self.incoming.room = event.limits, event.limits.fetched
        self.incoming.restored(event.version, event.digest)
        return [self._hello(now)]

    # Results

    def _failed(self, event: TaskFailed, now: float) -> list[Action]:
        """Record that there is no result; the Hello says so.

        An exception in the code of a problem is told with its reason, and says nothing of this machine.
        """
        if event.reason:
            told = event.assignment in self.tasks.held and self.contact.greeted
            self.tasks.failed(event)
            declined = [self.contact.send(Decline(event.assignment, event.reason), now)] if told else []
            return [*declined, *self.tasks.go_on(now)]
        self.tasks.failed(event)
        if self.tasks.failures == MOST_FAILURES:
            return self._leave_requested(LeaveRequested(NOT_FINITE), now)
        return [] if self.leaving else [self._hello(now)]

    def _go(self, message: SendPayload, now: float) -> list[Action]:
        if message.offset < EVERYTHING:
            return self.outgoing.go(message, now) if self.contact.greeted else []
        actions, self.contact.link = self.outgoing.arrived(message.assignment, self.contact.link, now)
        return actions

    def _ack(self, message: Ack, now: float) -> list[Action]:
        number = message.assignment
        if number in self.tasks.held and not message.accepted:
            return self.tasks.done_elsewhere(number, now)
        self.tasks.tally.answered(number, message.accepted, message.reason)
        actions, link = self.outgoing.answered(number, message.accepted, self.contact.link, now)
        self.contact.link = link
        return actions + self.tasks.go_on(now) if actions else []

    # Leaving

    def _leave_requested(self, event: LeaveRequested, now: float) -> list[Action]:
        self.leaving = event.reason or "asked to leave"
        self.leaving_since = min(self.leaving_since, now)  # asked again, it stays no longer
        actions = self.tasks.leave()
        return actions if self.ready else self._leave(now)

    def _has_handed_in(self) -> bool:
        return self.ready and self.contact.greeted and not self.tasks.num_begun and not self.outgoing.pending

    def _leave(self, now: float) -> list[Action]:
        final = self.tasks.failures < MOST_FAILURES
        return [self.contact.send(Leave(self.leaving), now), Quit(self.leaving, final, left=final)]


_HANDLE: dict[type[Event], Callable[[Worker, Any, float], list[Action]]] = {
    Received: Worker._received,
    Fetched: Worker._fetched,
    FetchFailed: Worker._fetch_failed,
    Prepared: Worker._prepared,
    Updated: lambda worker, event, now: worker.tasks.updated(event, now),
    Trained: lambda worker, event, now: worker.tasks.trained(event, now),
    Nearly: lambda worker, event, now: worker.tasks.nearly(event, now),
    TaskDone: lambda worker, event, now: worker.tasks.done(event, now),
    TaskFailed: Worker._failed,
    Measured: Worker._measured,
    ProofChecked: lambda worker, event, now: proofs.counted(event, worker.tasks.tally),
    Tick: Worker._tick,
    LeaveRequested: Worker._leave_requested,
}

_MESSAGES: dict[type[Message], Callable[[Worker, Any, float], list[Action]]] = {
    Welcome: Worker._welcomed,
    Pulse: Worker._pulse,
    Identify: Worker._who,
    Assign: lambda worker, message, now: worker.tasks.assign(message, now),
    Newer: lambda worker, message, now: worker.tasks.newer(message, now),
    SendPayload: Worker._go,
    Ack: Worker._ack,
    Included: lambda worker, message, now: proofs.told(message, worker.tasks.tally),
    Stop: Worker._stop,
}

MakeWorker = Callable[[int, NodeProfile, tuple[str, ...]], Worker]
"""Makes the machine of a process from its session, the hardware's profile, and the accepted kinds of tasks."""
