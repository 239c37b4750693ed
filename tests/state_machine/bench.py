"""A worker under test: a shell that only keeps the books, and checks every action against them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from barnraise.core.types import (
    KINDS,
    AnyResult,
    AnyTask,
    Audit,
    Blob,
    Evaluate,
    Flush,
    News,
    NodeProfile,
    RowRange,
    Train,
    Update,
)
from barnraise.wire.messages import (
    Ack,
    Assign,
    Decline,
    Hello,
    Included,
    Leave,
    Message,
    Newer,
    Offer,
    Pulse,
    RequestTask,
    SendPayload,
    Stop,
    Subscribe,
    Term,
    Welcome,
    WorkerSettings,
)
from barnraise.worker import actions as act
from barnraise.worker import events as ev
from barnraise.worker.limits import Limits
from barnraise.worker.machine import Worker

from ..tasks import train
from .engine import MANIFEST, WORKER_SETTINGS, answer_to, digest

SHARDS = (Blob(digest(10**9), 100_000), Blob(digest(10**9 + 1), 50_000), Blob(digest(10**9 + 2), 70_000))
SNAPSHOT = 40_000


def delta(version: int) -> Update:
    return Update("delta", version, Blob(digest(version), 9000), digest(10**6 + version))


def snapshot(version: int) -> Update:
    return Update("snapshot", version, Blob(digest(10**6 + version), SNAPSHOT), digest(10**6 + version))


def make_task(number: int, base: int, updates: tuple[Update, ...], shard: int = 0, steps: int = 4) -> Train:
    return train(number, base=base, updates=updates, rows=(RowRange(shard, 0, 8),), steps=steps, seed=number)


def make_evaluation(number: int, base: int, updates: tuple[Update, ...], back: int = 0) -> Evaluate:
    """Return the measurement of the version that is `back` before the base."""
    rows, undone = RowRange(len(SHARDS) - 1, 0, 40), deltas(base, back)
    return Evaluate(id=number, base=base, news=News(updates), held_out=rows, batch_size=10, tokens=120, back=undone)


def deltas(base: int, back: int) -> tuple[Update, ...]:
    """Those that lead to the base from `back` versions before."""
    return tuple(delta(version) for version in range(max(0, base - back) + 1, base + 1))


def make_audit(number: int, base: int, updates: tuple[Update, ...], back: int) -> Audit:
    """Return an audit that repeats work from `back` versions before its base."""
    anew = make_task(number, max(0, base - back), ())
    return Audit(id=number, base=base, news=News(updates), train=anew, back=deltas(base, back), seed=number)


class Bench:
    """One worker process: `payloads` are its finished contributions that are not settled.

    A controller that is not `sound` answers what was not asked, and assigns what was done.
    """

    def __init__(
        self,
        settings: WorkerSettings = WORKER_SETTINGS,
        *,
        sound: bool = True,
        limits: Limits = Limits(),  # noqa: B008 (frozen)
        kinds: tuple[str, ...] = tuple(KINDS),
    ) -> None:
        self.settings, self.now, self.sound = settings, 0.0, sound
        self.num_events = 0
        self.worker, self.limits = Worker(7, kinds=kinds), limits
        self.replica, self.void = -1, False  # and whether what is applied leads to no version of this controller
        self.epoch = 0
        self.foreign: set[int] = set()  # tasks under way that the controller of this epoch did not give
        self.fetching: dict[str, Blob] = {}
        self.at_hand: set[str] = set()
        self.preparing = self.prepared = False
        self.applying: tuple[Update, ...] = ()
        self.training: AnyTask | None = None
        self.encoding: dict[int, AnyTask] = {}
        self.cut = False
        self.payloads: dict[int, AnyResult] = {}
        self.uploading: int | None = None  # the assignment that the worker uploads a payload of
        self.done: dict[int, bool] = {}  # assignment -> whether the controller accepted it
        self.hello: Hello | None = None
        self.asked: RequestTask | None = None
        self.watched: Subscribe | None = None
        self.told = -1  # the version to which what was sent leads
        self.left = self.stopped = False
        self.quit: act.Quit | None = None
        self.sent: list[Message] = []
        self.newest = self.last_task = 0
        self.acked: set[int] = set()
        self.proofs: list[Included] = []
        self._take(self.worker.start(self.now))

    def handle(self, event: ev.Event) -> list[act.Action]:
        """One event, and all the checks."""
        self.num_events += 1
        over = self.quit is not None
        actions = self.worker.handle(event, self.now)
        assert not over or not actions
        self._take(actions)
        self.check()
        while self.proofs and self.quit is None:  # the shell checks them at once
            told = self.proofs.pop()
            self.handle(ev.ProofChecked(told.assignment, told.version, "" if told.members else "it has no list"))
        return actions

    def hear(self, message: Message) -> list[act.Action]:
        return self.handle(ev.Received(message))

    def check(self) -> None:
        """Everything that must hold between events."""
        worker = self.worker
        assert worker.quit == (self.quit is not None)
        assert worker.outgoing.pending == self.payloads
        assert worker.tasks.tally.waiting == self.payloads.keys()
        assert len(self.payloads) <= 3 + (
            not self.sound
        )  # one was encoded as another began; and a residual, however often that is asked for
        running = worker.tasks.running
        assert (running.task if running else None) == self.training
        assert {number: begun.task for number, begun in worker.tasks.encoding.items()} == self.encoding
        assert worker.incoming.have == self.replica or self.limits.fetched < math.inf
        assert worker.incoming.updating == bool(self.applying)
        assert worker.incoming.needs <= self.fetching.keys()
        assert worker.tasks.watching or self.watched is None or not worker.contact.greeted
        waiting = worker.tasks.waiting
        assert waiting is None or waiting.id not in self.payloads
        assert waiting is None or waiting.id not in self.done or not self.sound
        assert worker.quit or worker.deadline < math.inf

    def _take(self, actions: list[act.Action]) -> None:
        if not self.sound and not self.applying and self.worker.incoming.have < 0:
            self.replica = -1  # another controller has this version with another digest than was told before
        for action in actions:
            assert self.quit is None
            getattr(self, f"_{type(action).__name__.lower()}")(action)

    def _send(self, action: act.Send) -> None:
        message = action.message
        self.sent.append(message)
        if isinstance(message, Hello):
            assert self.hello is None or message.greeting - self.hello.greeting in (0, 1) or not self.sound
            assert message.pending == tuple(self.payloads)
            running = self.worker.tasks.running
            trains = self.training if running and not running.dropped else None
            encoded = [task.id for task in self.encoding.values() if not self.worker.tasks.encoding[task.id].dropped]
            expected = {*(task.id for task in (trains, self.worker.tasks.waiting) if task), *encoded}
            assert set(message.working) == expected
            self.hello = message
        elif isinstance(message, RequestTask):
            assert self.worker.contact.greeted
            assert self.prepared
            assert not self.applying
            assert not self.worker.leaving
            assert self.asked is None or not self.sound
            assert message.have == self.replica
            self.asked = message
        elif isinstance(message, Decline):
            assert self.prepared
            assert self.training is None or self.training.id != message.assignment
            assert message.assignment not in self.payloads
        elif isinstance(message, Subscribe):
            assert self.worker.contact.greeted
            assert self.settings.overlap
            assert self.watched is None or not self.sound
            self.watched = message
        elif isinstance(message, Leave):
            assert self.worker.leaving
            assert not self.prepared or not (self.payloads or self.training or self.encoding)
            self.left = True

    def _fetch(self, action: act.Fetch) -> None:
        self.fetching[action.blob.digest] = action.blob

    def _forget(self, action: act.Forget) -> None:
        """Files are fetched to the end, and stay."""
        for name in action.digests - {blob.digest for blob in SHARDS}:
            self.fetching.pop(name, None)
            self.at_hand.discard(name)

    def _prepare(self, action: act.Prepare) -> None:
        assert not self.preparing
        assert action.manifest.digest in self.at_hand
        self.preparing = True

    def _applyupdates(self, action: act.ApplyUpdates) -> None:
        assert not self.applying
        here = {update.blob.digest for update in action.news.updates} <= self.at_hand
        assert here or not self.sound  # where a version leads back: the shell voids a replica that lacks something
        first = action.news.updates[0]
        assert first.kind == "snapshot" or first.version == self.replica + 1
        assert self.training is None or not self.training.exact, "what is measured stays as it is"
        self.applying = action.news.updates

    def _starttask(self, action: act.StartTask) -> None:
        task = action.task
        assert self.training is None
        assert not self.applying
        assert self.worker.contact.greeted
        assert task.id not in self.payloads
        assert task.id not in self.done or not self.sound
        if not isinstance(task, Flush):
            fits = self.replica == task.base or (self.replica > task.base and not task.exact)
            assert fits or not task.replica
            assert {SHARDS[piece.shard].digest for piece in task.rows} <= self.at_hand
            back = {update.blob.digest for update in task.undoes}
            assert back <= self.at_hand
            self.at_hand -= back  # they are used up
        assert len(self.encoding) <= (not isinstance(task, Flush)), "a residual is submitted once all else is in it"
        never = isinstance(task, Flush) or not self.settings.overlap
        assert 0 <= action.ask_at <= task.steps + never
        self.training, self.cut = task, False

    def _cutshort(self, action: act.CutShort) -> None:
        assert self.training is not None
        self.cut = True

    def _offer(self, action: act.Offer) -> None:
        assert self.worker.contact.greeted
        assert self.payloads[action.result.assignment] == action.result

    def _upload(self, action: act.Upload) -> None:
        assert self.worker.contact.greeted
        assert self.payloads[action.result.assignment] == action.result
        assert 0 <= action.offset < action.result.payload.num_bytes
        self.uploading = action.result.assignment

    def _cancelupload(self, action: act.CancelUpload) -> None:
        assert self.uploading is not None
        self.uploading = None

    def _settle(self, action: act.Settle) -> None:
        assert action.accepted == (action.assignment in self.acked)
        assert action.assignment != self.uploading
        self.acked.discard(action.assignment)
        del self.payloads[action.assignment]
        if action.assignment in self.foreign:
            self.foreign.discard(action.assignment)
        else:
            self.done[action.assignment] = action.accepted

    def _quit(self, action: act.Quit) -> None:
        self.quit = action

    def _say(self, action: act.Say) -> None:
        assert action.text.isprintable(), "its owner's terminal shows it"

    def _checkproof(self, action: act.CheckProof) -> None:
        self.proofs.append(action.told)

    # Messages of the controller

    def succeed(self, lost: int = 1) -> None:
        """Another controller answers, which lacks the newest `lost` assignments and versions."""
        assert self.hello is not None
        contact = self.worker.contact
        if not self.prepared or contact.greeted or contact.greeting != self.hello.greeting:
            return
        self.epoch += 1
        self.last_task, self.newest = max(0, self.last_task - lost), max(0, self.newest - lost)
        begun = [*self.encoding.values(), *([self.training] if self.training is not None else [])]
        self.foreign.update(task.id for task in begun if task.id > self.last_task)
        self.void = bool(self.applying)
        if self.replica > self.newest and not self.void:
            self.replica = -1
        held = (*self.hello.pending, *self.hello.working)
        self.welcome(tuple(number for number in held if number > self.last_task))
        self.done = {number: accepted for number, accepted in self.done.items() if number <= self.last_task}

    def welcome(self, forget: tuple[int, ...] = (), greeting: int | None = None, newest: Update | None = None) -> None:
        """The answer to a greeting, by default the last one, of a controller whose `newest` version is that."""
        assert self.hello is not None
        greeting = self.hello.greeting if greeting is None else greeting
        counts = greeting == self.worker.contact.greeting and not self.worker.contact.greeted and self.quit is None
        newest = newest or delta(self.newest)
        known = newest.version, newest.parameters_digest
        who = "trial", "a", greeting, self.settings, MANIFEST
        message = Welcome(*who, 1.0, 5.0, forget, Term(self.epoch), *known, self.last_task)
        another = self.worker.contact.term.epoch != self.epoch and self.prepared
        if counts:
            self.asked = self.watched = None  # the controller forgot it with the Hello
            self.told = -1
        actions = self.hear(message)
        sent = [action.message for action in actions if isinstance(action, act.Send)]
        offers = {message.result.assignment for message in sent if isinstance(message, Offer)}
        if counts and another and not self.worker.contact.greeted:
            assert not offers, "the next greeting says what is left"
        elif counts:
            assert offers == self.payloads.keys()
            assert self.uploading is None, "what was under way on the old connection is lost"
            assert not self.payloads.keys() & set(forget)
            assert self.worker.tasks.waiting is None or self.worker.tasks.waiting.id not in forget
            assert self.training is None or self.training.id not in forget or self.cut
        else:
            assert not offers

    def assign(
        self, *, behind: int = 0, whole: bool = False, shard: int = 0, kind: str = "train", older: int = 0
    ) -> None:
        """Answer the request for work with a task.

        The task's version is `behind` versions newer than the replica had. A measurement is of a version that is
        `older` versions before the task's, and an audit repeats work that began `older` versions before it.
        """
        if self.asked is None:
            return
        have, self.asked = max(self.asked.have, self.told), None
        self.newest = max(self.newest, have) + behind
        base = self.newest
        self.last_task += 1
        updates: tuple[Update, ...] = ()
        if have < 0 or (whole and have < base):
            updates = (snapshot(base),)
        else:
            updates = tuple(delta(version) for version in range(have + 1, base + 1))
        greeted = self.worker.contact.greeted
        task: AnyTask = make_task(self.last_task, base, updates, shard)
        if kind == "evaluate":
            task = make_evaluation(self.last_task, base, updates, older)
        elif kind == "audit":
            task = make_audit(self.last_task, base, updates, older)
        actions = self.hear(Assign(task))
        assert greeted or not actions, "what was assigned before the last Hello is not the worker's any more"

    def newer(self, behind: int = 1, merged: int = 0) -> None:
        """Tell a worker that watches of a version that is `behind` newer than what it was told of last."""
        if self.watched is None:
            return
        have, self.watched = max(self.watched.have, self.told), None
        self.newest = self.told = max(self.newest, have) + behind
        self.hear(Newer(News(tuple(delta(version) for version in range(have + 1, self.newest + 1)), merged, 1.0)))

    def ack(self, assignment: int, accepted: bool) -> None:
        if accepted:
            self.acked.add(assignment)
        self.hear(Ack(assignment, accepted))

    def go(self, assignment: int, offset: int) -> None:
        self.hear(SendPayload(assignment, offset))

    def pulse(self, heartbeat: float) -> None:
        self.hear(Pulse(self.now, heartbeat, 5.0 * heartbeat))

    def stop(self) -> None:
        self.stopped = True
        self.hear(Stop("the run is over"))
        assert self.quit is not None

    # Reports of the shell

    def fetched(self, name: str, *, on_disk: bool = False) -> None:
        blob = self.fetching.pop(name)
        self.at_hand.add(blob.digest)
        self.handle(ev.Fetched(name, 0 if on_disk else blob.num_bytes))

    def fetch_failed(self, name: str) -> None:
        del self.fetching[name]
        self.handle(ev.FetchFailed(name))

    def finish_preparing(self, replica: Update | None = None) -> None:
        """Be ready, with a `replica` of an earlier process if there is one."""
        if self.preparing and not self.prepared:
            self.prepared = True
            held = (replica.version, replica.parameters_digest) if replica else (-1, None)
            self.replica = held[0]
            self.handle(ev.Prepared(SHARDS, NodeProfile(50.0), self.limits, *held))

    def finish_update(self, *, good: bool = True) -> None:
        if self.applying:
            led, self.applying = self.applying[-1].version if good else -1, ()
            self.replica, self.void = -1 if self.void else led, False
            self.handle(ev.Updated(led))

    def nearly(self) -> None:
        if self.training is not None:
            self.handle(ev.Nearly(self.training.id))

    def finish_task(self, steps: int = 4) -> None:
        """End the running task; the shell keeps its result from here on.

        A part of a measurement is no result.
        """
        task, self.training = self.training, None
        if task is None:
            return
        if task.exact and (steps < task.steps or self.cut):
            steps = 0
        self.payloads[task.id] = answer_to(task, steps=steps, loss=1.0)
        self.handle(ev.TaskDone(self.payloads[task.id]))

    def take_steps(self) -> None:
        """The steps of the running task are taken; its update is encoded while the next one runs."""
        if self.training is not None and self.training.trains:
            task = self.training
            if self.settings.overlap:
                self.encoding[task.id], self.training = task, None
            self.handle(ev.Trained(task.id))

    def finish_encoding(self) -> None:
        for number in list(self.encoding)[:1]:
            self.payloads[number] = answer_to(self.encoding.pop(number), steps=4, loss=1.0)
            self.handle(ev.TaskDone(self.payloads[number]))

    def fail_task(self) -> None:
        """The running task ends in numbers that are not finite, or that which is encoded did."""
        task = self.encoding.pop(next(iter(self.encoding))) if self.encoding else self.training
        if task is not None:
            self.training = None if self.training == task else self.training
            self.handle(ev.TaskFailed(task.id))

    def tick(self, seconds: float) -> None:
        """Time passes; the shell ticks when the deadline is reached, and that moves the deadline."""
        self.now += seconds
        if self.worker.deadline <= self.now:
            self.handle(ev.Tick())
            assert self.worker.deadline > self.now

    def leave(self) -> None:
        self.handle(ev.LeaveRequested("asked to"))

    def set_up(self, *, answering: bool = True) -> None:
        """Greeted, prepared, at work; contributions are answered meanwhile, or not."""
        while self.training is None:
            self._go_well(answering=answering)

    def conclude(self, tasks: int = 4) -> None:
        """From here on nothing fails: the worker makes `tasks` contributions more, or uploads all and leaves."""
        goal = sum(self.done.values()) + tasks
        for _ in range(40 + 10 * tasks):
            if self.quit is not None or sum(self.done.values()) >= goal:
                break
            self._go_well()
        assert self.quit is not None or sum(self.done.values()) >= goal, "the worker is stuck"
        if self.worker.leaving and self.quit is not None:
            assert self.left or self.stopped or not self.quit.final

    def _go_well(self, *, answering: bool = True) -> None:
        for step in self.due()[: None if answering or not self.payloads else -1]:
            if self.quit is None:
                step()
        self.tick(0.3)

    def due(self) -> list[Callable[[], None]]:
        """Return the steps that would happen next without a fault."""
        steps: list[tuple[Any, Callable[[], None]]] = [
            (not self.worker.contact.greeted, self.welcome),
            (self.fetching, lambda: self.fetched(next(iter(self.fetching)))),
            (self.preparing and not self.prepared, self.finish_preparing),
            (self.applying, self.finish_update),
            (self.asked, self.assign),
            (self.encoding, self.finish_encoding),
            (self.training and not self.encoding, self.finish_task),
            (self.payloads, lambda: self.ack(next(iter(self.payloads)), True)),
        ]
        return [step for is_due, step in steps if is_due]
