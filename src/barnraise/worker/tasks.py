"""The tasks of a worker: at most one running and one waiting, asked for, made ready, started, and what came of them.

With overlap the next task is asked for when the running one is nearly done, early enough that rows and updates are at
hand when it ends; and versions are watched for, which the running task takes in.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from barnraise.core.types import KINDS, AnyTask, Blob, News, Task
from barnraise.wire.messages import INLINE_BYTES, Assign, Decline, Newer, RequestTask, Subscribe, Welcome
from barnraise.worker import measure
from barnraise.worker.actions import Action, CutShort, Quit, Settle, StartTask
from barnraise.worker.ahead import Lead
from barnraise.worker.contact import Contact
from barnraise.worker.events import Fetched, Nearly, TaskDone, Updated
from barnraise.worker.incoming import Incoming
from barnraise.worker.limits import Limits, unlent
from barnraise.worker.outgoing import SLOWER, SLOWEST, Outgoing
from barnraise.worker.tally import AnswerTally

Greet = Callable[[float], Action]

ASK_PATIENCE = 30.0
"""Seconds without anything to do after which a worker that has asked for a task greets anew, and what an answer takes
on its line: its question, or the task that was the answer, or the version that the task is about, may have been
lost."""

REMEMBERED = 64
"""Assignments that a worker would know again."""


@dataclass
class Running:
    """A task under way. `near`: it is time to ask for the next. `dropped`: it is somebody else's by now."""

    task: AnyTask
    near: bool
    dropped: bool = False


class Tasks:
    """`greet` tells the controller what is held, when that is not what it must think. `kinds` of tasks are taken,
    within the `limits` of the machine. `failures` are the tasks that failed since one did not."""

    def __init__(
        self,
        contact: Contact,
        incoming: Incoming,
        outgoing: Outgoing,
        greet: Greet,
        kinds: tuple[str, ...] = tuple(KINDS),
    ) -> None:
        self.contact, self.incoming, self.outgoing, self._greet = contact, incoming, outgoing, greet
        self._kinds, self.limits = kinds, Limits()
        self.files: tuple[Blob, ...] | None = None  # that hold rows, once they are known: token shards, held-out rows
        self.running: Running | None = None
        self.waiting: AnyTask | None = None
        self.leaving = False
        self.failures = 0
        self.lead, self.tally = Lead(), AnswerTally()
        self.watching = False
        self._taken: deque[int] = deque(maxlen=REMEMBERED)  # the newest assignments, whatever became of them
        self._asked_at = self._taken_at = math.inf
        self._busy_at = 0.0
        self._fetched_at, self._fetched_bytes = 0.0, 0  # since when blobs are on their way, and what has come of them

    @property
    def held(self) -> tuple[int, ...]:
        """The assignments that it works on, or will."""
        running = self.running.task.id if self.running is not None and not self.running.dropped else None
        waiting = self.waiting.id if self.waiting is not None else None
        return tuple(number for number in (running, waiting) if number is not None)

    @property
    def _open(self) -> bool:
        """Whether tasks and versions are taken."""
        return self.files is not None and self.contact.greeted and not self.leaving

    def greeting(self) -> None:
        """What was asked for on the connection before will not come."""
        self._asked_at = math.inf

    def another_controller(self, welcome: Welcome, now: float) -> list[Action]:
        """Go on under a controller of another term. It may lack the newest rows of the ledger, and gives their numbers
        to other assignments and versions: numbers that it has not given yet are not known again."""
        forgotten = [action for assignment in welcome.forget for action in self._forget(assignment)]
        kept = {*self.outgoing.pending, *self.held}
        known = [number for number in self._taken if number <= welcome.assigned or number in kept]
        self._taken = deque(known, maxlen=REMEMBERED)
        self.outgoing.newest = min(self.outgoing.newest, welcome.assigned)
        self.incoming.compare(welcome.version, welcome.digest)
        if self.waiting is None and not self.incoming.busy:
            return forgotten + self.welcomed((), now)
        return forgotten + self.give_up()  # the next greeting says what is left

    def welcomed(self, forget: tuple[int, ...], now: float) -> list[Action]:
        """A connection stands anew. What it says of assignments that are somebody else's by now is done."""
        self.watching = False
        actions = [action for assignment in forget for action in self._forget(assignment)]
        return actions + self.outgoing.greeted(now) + self._bring_up_to_date(now)

    def done_elsewhere(self, assignment: int, now: float) -> list[Action]:
        """Somebody else was faster."""
        return self._forget(assignment) + self._bring_up_to_date(now)

    def _forget(self, assignment: int) -> list[Action]:
        """It is somebody else's by now."""
        if assignment in self.outgoing.pending:
            self.tally.dropped(assignment)
            return self.outgoing.forget(assignment)
        if self.waiting is not None and self.waiting.id == assignment:
            self.waiting, self._asked_at = None, math.inf  # its answer has come, and is void
            return self.incoming.forget_task()
        elif self.running is not None and self.running.task.id == assignment:
            return [self._drop(self.running)]
        return []

    # What comes

    def assign(self, message: Assign, now: float) -> list[Action]:
        task = message.task
        if task.id in self._taken:
            return []  # the message has come twice: what was done once is not done again
        if refusal := unlent(task, self._kinds):
            return self._refuse(task, refusal, now)
        if task.preempts:
            return self._preempt(task, now)
        if self.contact.greeted and self.waiting is not None and self.waiting.id != task.id:
            return [self._greet(now)]  # one too many (a Next came twice): the controller learns what is held
        if self.waiting is not None or self.files is None or not self._open:
            return []
        self._take(task, now)
        if (last := max((rows.shard for rows in task.rows), default=0)) >= len(self.files):
            return [Quit(f"a task names the rows of file {last}, but there are {len(self.files)}", True)]
        together = [task] if self.running is None else [task, self.running.task]
        if refusal := self.limits.refusal(task) or self.limits.too_many_files(self.files, together):
            return self._decline(task, refusal, now)
        if not self.incoming.has_room(task.news):
            return self._start_over(task.news)
        fetching = self._hear(task.news, now) + self.incoming.get(self.files[rows.shard] for rows in task.rows)
        return fetching + self._get_back(now)

    def _refuse(self, task: AnyTask, reason: str, now: float) -> list[Action]:
        """Give back a task that was not taken, and ask for another."""
        self._taken.append(task.id)
        self._asked_at = math.inf
        return [self.contact.send(Decline(task.id, reason), now), *self.go_on(now)] if self._open else []

    def _start_over(self, news: News) -> list[Action]:
        """The way to the newest version is longer than what memory has room for: ask for a snapshot instead."""
        needed, room = self.incoming.num_bytes(news.updates), self.incoming.room
        if all(update.kind == "snapshot" for update in news.updates) and not self.incoming.busy:
            return [Quit(f"a version of {needed:,} bytes is too large for the {room:,.0f} that are left for it", False)]
        self.incoming.have = -1
        return self.give_up()

    def _preempt(self, task: AnyTask, now: float) -> list[Action]:
        """A task for which all else is left: as the run ends, what runs goes into the residual that is handed in."""
        if not self._open or task.id < max(self._taken, default=0):
            return []  # of two that are for the end, the later one counts
        self._take(task, now)
        settled = self.incoming.forget()
        for number, result in list(self.outgoing.pending.items()):
            if not result.steps:  # a residual, asked for once more: the controller does not wait for it any more
                self.tally.dropped(number)
                settled += self.outgoing.forget(number)
        if self.running is None:
            return settled + self.go_on(now)
        return [*settled, self._drop(self.running)]

    def _take(self, task: AnyTask, now: float) -> None:
        self.waiting, self._taken_at = task, now
        self._taken.append(task.id)

    def _drop(self, running: Running) -> Action:
        running.dropped = True
        return CutShort()

    def newer(self, message: Newer, now: float) -> list[Action]:
        """Take a version in, also into the task that runs."""
        if not self._open or not self.incoming.has_room(message.news):
            return []  # the next task brings it
        self.watching = False
        again = self._watch(now) if message.news.merged < self.outgoing.newest else []
        return again + self._hear(message.news, now)

    def _hear(self, news: News, now: float) -> list[Action]:
        self._begin_to_fetch(now)
        return self.incoming.hear(news)

    def _begin_to_fetch(self, now: float) -> None:
        """The line's rate is told by what comes from now on, if nothing is on its way yet."""
        if not self.incoming.needs:
            self._fetched_at, self._fetched_bytes = now, 0

    def fetched(self, event: Fetched, now: float) -> list[Action]:
        """A blob has come. What was not asked for here (the dataset's description, as the worker prepares) says nothing
        of the line: nobody knows since when it was on its way."""
        needs = self.incoming.needs
        if event.digest in needs:
            needs.discard(event.digest)
            self._fetched_bytes += event.num_bytes
            if not needs:
                self.contact.link = measure.downloaded(self.contact.link, self._fetched_bytes, now - self._fetched_at)
        return self._bring_up_to_date(now)

    def updated(self, event: Updated, now: float) -> list[Action]:
        if self.incoming.updated(event.version) < 0:
            return self.give_up()
        return self._bring_up_to_date(now)

    def _bring_up_to_date(self, now: float) -> list[Action]:
        """Take in what may be by now, and go on."""
        self._begin_to_fetch(now)
        actions = self.incoming.take(self._latest)
        if actions is None:
            return self.give_up()
        return actions + self.go_on(now)

    @property
    def _latest(self) -> float:
        """The newest version that may be taken in: what a task is about stays until it is done, whatever comes."""
        if self.running is not None and self.running.task.exact:
            return -1
        return self.waiting.base if self.waiting is not None and self.waiting.exact else math.inf

    def give_up(self) -> list[Action]:
        """Begin anew, without the task that waits: it is for others, or comes again with a way that works.

        The next Tick greets, so that whatever keeps failing is tried once a second at most.
        """
        self.waiting = None
        self._asked_at = math.inf
        self.contact.begin_anew()
        return self.incoming.forget()

    # What is done

    def go_on(self, now: float) -> list[Action]:
        """Start what waits, ask when there is nothing."""
        if self._asked_at < math.inf and self._at_hand():
            self.lead.waited(now - self._asked_at)
            self._asked_at = math.inf
        if self.files is None or not self.contact.greeted:
            return []
        self._begin_to_fetch(now)
        fetching = self._get_back(now)
        if self.running is not None:
            return fetching + (self._ask(now) if self.running.near else [])
        task = self.waiting
        if task is None:
            return self._ask(now)
        if task.exact and self.incoming.have > task.base and not self.incoming.updating:
            return self._decline(task, f"this replica is at version {self.incoming.have} already", now)
        if not self._at_hand() or (len(self.outgoing.pending) > 1 and not task.preempts):
            return fetching
        ask_at = self._ask_at(task)
        self.running, self.waiting = Running(task, near=ask_at == 0), None
        started = [*fetching, StartTask(task, ask_at), *self.incoming.started(), *self._watch(now)]
        return started + (self._ask(now) if self.running.near else [])

    def _get_back(self, now: float) -> list[Action]:
        """Fetch what the task that waits takes back, once the replica is where that leads back from."""
        task = self.waiting
        if task is None or not task.undoes or self.incoming.back or self.incoming.have != task.base:
            return []
        if self.incoming.updating:
            return []
        return self.incoming.get_back(task.undoes)

    def _decline(self, task: Task, reason: str, now: float) -> list[Action]:
        """Give the task that waits back, and ask for another."""
        self.waiting, self._asked_at = None, math.inf
        forgotten = self.incoming.forget_task()
        return [*forgotten, self.contact.send(Decline(task.id, reason), now), *self._bring_up_to_date(now)]

    def gone(self, digest: str, now: float) -> list[Action]:
        """A blob that is waited for cannot be had."""
        wanted = any(update.blob.digest == digest for news in self.incoming.queue for update in news.updates)
        if self.waiting is not None and digest in self.incoming.back and not wanted:
            return self._decline(self.waiting, "a delta that it takes back is not kept any more", now)
        return self.give_up()

    def _ask_at(self, task: Task) -> int:
        """The step after which to ask for the next task."""
        welcome = self.contact.welcome
        if task.preempts or welcome is None or not welcome.settings.overlap:
            return task.steps + 1
        return self.lead.ask_at(task.steps) if task.toll >= 1.0 else 0

    def _at_hand(self) -> bool:
        """Whether the waiting task could start: its rows are here, and the replica is at its base."""
        task = self.waiting
        if task is None or self.files is None or self.incoming.updating:
            return False
        if task.preempts:
            return True
        rows = {self.files[rows.shard].digest for rows in task.rows}
        lacks = (rows | self.incoming.back) & self.incoming.needs or (task.undoes and not self.incoming.back)
        return self._is_there(task) and not lacks

    def _is_there(self, task: Task) -> bool:
        """Whether the replica is at the task's base."""
        return self.incoming.have >= task.base and not self.incoming.updating

    def _ask(self, now: float) -> list[Action]:
        if self._asked_at < math.inf or self.waiting is not None or self.incoming.updating or self.leaving:
            return []
        self._asked_at = now
        return [self.contact.send(RequestTask(self.incoming.have, self.contact.link), now)]

    def _watch(self, now: float) -> list[Action]:
        """Ask to be told of the next version: once a task, and on until its own work is in one. No more than that, as a
        slow node's link is not for every version."""
        welcome = self.contact.welcome
        overlap = welcome is not None and welcome.settings.overlap
        training = self.running is not None and self.running.task.trains and not self.leaving
        if not overlap or not training or self.watching or not self.contact.greeted:
            return []
        self.watching = True
        return [self.contact.send(Subscribe(self.incoming.have), now)]

    def unanswered(self, now: float) -> bool:
        """Whether there has been nothing to do for long, though a task was asked for; or one that waits for a version
        which is not on its way. Behind what fills the line an answer takes its time."""
        if self.running is not None or self.outgoing.uploading or self.incoming.busy:
            self._busy_at = now
            return False
        since = max(self._asked_at if self.waiting is None else self._taken_at, self._busy_at)
        brought = INLINE_BYTES / max(self.contact.link.down / SLOWER, SLOWEST)  # that may come along with the answer
        return now - since > ASK_PATIENCE + brought and not self._at_hand()

    def nearly(self, event: Nearly, now: float) -> list[Action]:
        if self.running is not None:
            self.running.near = self.running.task.id == event.assignment
        return self.go_on(now)

    def done(self, event: TaskDone, now: float) -> list[Action]:
        running, self.running = self.running, None
        self.incoming.ended()
        result = event.result
        assert running is not None
        task = running.task
        assert task.id == result.assignment
        if task.trains:
            self.lead.trained(result.steps, task.effort * result.steps / max(1, task.steps), result.seconds)
        self.failures = 0 if result.steps else self.failures
        if running.dropped:
            return [Settle(task.id, False), *self._bring_up_to_date(now)]
        if task.steps and not result.steps:  # the controller must know that it is not coming
            return [Settle(task.id, False), *([] if self.leaving else [self._greet(now)])]
        self.tally.done(task, result)
        self.outgoing.keep(result)
        next_ones = self._bring_up_to_date(now)
        if not self.contact.greeted:  # any more: the Welcome will bring it about
            return next_ones
        return self.outgoing.add(result, now) + next_ones

    def failed(self) -> None:
        """Nothing can be made of the task that runs."""
        assert self.running is not None
        self.running = None
        self.incoming.ended()
        self.failures += 1

    def leave(self) -> list[Action]:
        """Take no more; what runs ends with the step in hand."""
        self.leaving, self.waiting = True, None
        return self.incoming.forget() + ([CutShort()] if self.running is not None else [])
