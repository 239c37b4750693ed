"""The tasks of a worker: at most one running and one waiting, from the request to the result.

The update of a task is encoded while the next one runs. With overlap the next task is requested when the running one is
nearly done, early enough that rows and updates are here when it ends; and the worker subscribes to versions, which the
running task takes in.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from barnraise.core.types import KINDS, AnyTask, News, Task
from barnraise.wire.messages import INLINE_BYTES, Assign, Decline, Newer, RequestTask, Subscribe, Welcome
from barnraise.worker import measure
from barnraise.worker.actions import Action, CutShort, Quit, Settle, StartTask
from barnraise.worker.ahead import Lead
from barnraise.worker.begun import Begun, Running
from barnraise.worker.contact import Contact
from barnraise.worker.events import Fetched, Nearly, TaskDone, TaskFailed, Trained, Updated
from barnraise.worker.incoming import Incoming
from barnraise.worker.limits import Limits, unlent
from barnraise.worker.outgoing import SLOWER, SLOWEST, Outgoing
from barnraise.worker.row_files import RowFiles
from barnraise.worker.tally import AnswerTally

Greet = Callable[[float], Action]

ASK_PATIENCE = 30.0
"""Seconds without work after which a worker that has asked for a task greets again, and the time of an answer on its
line: its question, or the task that was the answer, or the version that the task is about, may have been lost."""

REMEMBERED = 64
"""Assignments that a worker recognises when they come again."""


class Tasks(Begun):
    """The tasks of a worker within its terms.

    `greet` tells the controller what is held, when it may believe otherwise. `kinds` of tasks are accepted, within the
    `limits` of the machine. `failures` counts consecutive failed tasks.
    """

    def __init__(
        self,
        contact: Contact,
        incoming: Incoming,
        outgoing: Outgoing,
        greet: Greet,
        kinds: tuple[str, ...] = tuple(KINDS),
    ) -> None:
        super().__init__()
        self.contact, self.incoming, self.outgoing, self._greet = contact, incoming, outgoing, greet
        self._kinds, self.limits = kinds, Limits()
        self.files: RowFiles | None = None  # files with rows, once they are known
        self.waiting: AnyTask | None = None
        self.leaving, self.failures = False, 0
        self.lead, self.tally, self.watching = Lead(), AnswerTally(), False
        self._taken: deque[int] = deque(maxlen=REMEMBERED)  # the newest assignments, whatever their outcome
        self._asked_at = self._taken_at = math.inf
        self._busy_at = 0.0
        self._fetched_at, self._fetched_bytes = 0.0, 0  # since when blobs are on their way, and their bytes so far

    @property
    def held(self) -> tuple[int, ...]:
        """Return the assignments that it works on, or will."""
        return (*self.begun, *([self.waiting.id] if self.waiting is not None else []))

    @property
    def _open(self) -> bool:
        """Return whether tasks and versions are accepted."""
        return self.files is not None and self.contact.greeted and not self.leaving

    def greeting(self) -> None:
        """Drop the requests on the connection before."""
        self._asked_at = math.inf

    def another_controller(self, welcome: Welcome, now: float) -> list[Action]:
        """Continue under a controller of another term.

        It may lack the newest rows of the ledger, and gives their numbers to other assignments and versions: numbers
        that it has not given yet are forgotten.
        """
        forgotten = [action for assignment in welcome.forget for action in self._forget(assignment)]
        kept = {*self.outgoing.pending, *self.held}
        known = (number for number in self._taken if number <= welcome.assigned or number in kept)
        self._taken = deque(known, maxlen=REMEMBERED)
        self.outgoing.newest = min(self.outgoing.newest, welcome.assigned)
        self.incoming.compare(welcome.version, welcome.digest)
        if self.waiting is None and not self.incoming.busy:
            return forgotten + self.welcomed((), now)
        return forgotten + self.give_up()  # the next greeting says what is left

    def welcomed(self, forget: tuple[int, ...], now: float) -> list[Action]:
        """Continue on a new connection.

        `forget` are assignments that other nodes have now.
        """
        self.watching = False
        actions = [action for assignment in forget for action in self._forget(assignment)]
        return actions + self.outgoing.greeted(now) + self._bring_up_to_date(now)

    def done_elsewhere(self, assignment: int, now: float) -> list[Action]:
        """Drop an assignment that another node finished first."""
        return self._forget(assignment) + self._bring_up_to_date(now)

    def _forget(self, assignment: int) -> list[Action]:
        """Drop an assignment that another node has now."""
        if assignment in self.outgoing.pending:
            self.tally.dropped(assignment)
            return self.outgoing.forget(assignment)
        if self.waiting is not None and self.waiting.id == assignment:
            self.waiting, self._asked_at = None, math.inf  # its answer has come, and is void
            return self.incoming.forget_task()
        if self.running is not None and self.running.task.id == assignment:
            return [self._drop(self.running)]
        if assignment in self.encoding:
            self.encoding[assignment].dropped = True
        return []

    # Incoming messages

    def assign(self, message: Assign, now: float) -> list[Action]:
        task = message.task
        if task.id in self._taken:
            return []  # the message has come before: it is not done again
        if refusal := unlent(task, self._kinds):
            return self._refuse(task, refusal, now)
        if task.preempts:
            return self._preempt(task, now)
        if self.contact.greeted and self.waiting is not None and self.waiting.id != task.id:
            return [self._greet(now)]  # one too many (RequestTask came twice): the controller learns what is held
        if self.waiting is not None or self.files is None or not self._open:
            return []
        self._take(task, now)
        if not task.replica:
            return self.go_on(now)
        if fault := self.files.fault(task):
            return [Quit(fault, True)]
        together = [task] if self.running is None else [task, self.running.task]
        if refusal := self.limits.refusal(task) or self.limits.too_many_files(map(self.files.of, together)):
            return self._decline(task, refusal, now)
        if not self.incoming.has_room(task.news):
            return self._start_over(task.news)
        fetching = self._hear(task.news, now) + self.incoming.get(self.files.of(task))
        return fetching + (self.go_on(now) if self.files.own else self._get_back(now))  # own rows do not arrive

    def _refuse(self, task: AnyTask, reason: str, now: float) -> list[Action]:
        """Give back a task that was not accepted, and ask for another."""
        self._taken.append(task.id)
        self._asked_at = math.inf
        return [self.contact.send(Decline(task.id, reason), now), *self.go_on(now)] if self._open else []

    def _start_over(self, news: News) -> list[Action]:
        """Ask for a snapshot, since the updates to the newest version exceed the memory."""
        needed, room = self.incoming.num_bytes(news.updates), self.incoming.room
        if all(update.kind == "snapshot" for update in news.updates) and not self.incoming.busy:
            return [Quit(f"a version of {needed:,} bytes is too large for the {room:,.0f} that are left for it", False)]
        self.incoming.have = -1
        return self.give_up()

    def _preempt(self, task: AnyTask, now: float) -> list[Action]:
        """Start a task for which all others stop: as the run ends, the running one goes into the submitted residual."""
        if not self._open or task.id < max(self._taken, default=0):
            return []  # two tasks of the run's end: the later one counts
        self._take(task, now)
        settled = self.incoming.forget()
        for number, result in list(self.outgoing.pending.items()):
            if not result.steps:  # a residual, requested once more: the controller does not wait for it any more
                self.tally.dropped(number)
                settled += self.outgoing.forget(number)
        self.drop_encoding()
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
        """Take a version in, also into the running task."""
        if not self._open or not self.incoming.has_room(message.news):
            return []  # the next task brings it
        self.watching = False
        again = self._watch(now) if message.news.merged < self.outgoing.newest else []
        return again + self._hear(message.news, now)

    def _hear(self, news: News, now: float) -> list[Action]:
        self._begin_to_fetch(now)
        return self.incoming.hear(news)

    def _begin_to_fetch(self, now: float) -> None:
        """Start measuring the line's rate, unless a blob is on its way."""
        if not self.incoming.needs:
            self._fetched_at, self._fetched_bytes = now, 0

    def fetched(self, event: Fetched, now: float) -> list[Action]:
        """Record a blob that has come.

        One that was not requested here (the dataset's description, as the worker prepares) does not measure the line:
        its start is not known.
        """
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
        """Take in the versions that may be, and continue."""
        self._begin_to_fetch(now)
        actions = self.incoming.take(self._latest) if self.incoming.queue else []
        if actions is None:
            return self.give_up()
        return actions + self.go_on(now)

    @property
    def _latest(self) -> float:
        """Return the newest version that may be taken in: an exact task's version stays until it is done."""
        if self.running is not None and self.running.task.exact:
            return -1
        return self.waiting.base if self.waiting is not None and self.waiting.exact else math.inf

    def give_up(self) -> list[Action]:
        """Drop the waiting task: other nodes have it, or it comes again with updates that work.

        The next Tick greets, so that a repeated failure is retried once a second at most.
        """
        self.waiting = None
        self._asked_at = math.inf
        self.contact.begin_anew()
        return self.incoming.forget()

    # Execution

    def go_on(self, now: float) -> list[Action]:
        """Start a waiting task, or ask for one."""
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
        if not self._at_hand() or self._must_wait(task):
            return fetching
        ask_at = self._ask_at(task)
        self.running, self.waiting = Running(task, near=ask_at == 0), None
        started = [*fetching, StartTask(task, ask_at), *self.incoming.started(), *self._watch(now)]
        return started + (self._ask(now) if self.running.near else [])

    def _must_wait(self, task: AnyTask) -> bool:
        """Return whether an available task cannot start before others have ended, or have been answered."""
        if task.preempts or task.id in self.encoding:  # they go into its residual; its number was a dropped one's
            return bool(self.encoding)
        return len(self.outgoing.pending) > 1 or len(self.encoding) > 1

    def _get_back(self, now: float) -> list[Action]:
        """Fetch the deltas that the waiting task undoes, once the replica is at its base."""
        task, incoming = self.waiting, self.incoming
        if task is None or incoming.updating or incoming.have != task.base or incoming.back or not task.undoes:
            return []
        return incoming.get_back(task.undoes)

    def _decline(self, task: Task, reason: str, now: float) -> list[Action]:
        """Give the waiting task back, and ask for another."""
        self.waiting, self._asked_at = None, math.inf
        forgotten = self.incoming.forget_task()
        return [*forgotten, self.contact.send(Decline(task.id, reason), now), *self._bring_up_to_date(now)]

    def gone(self, digest: str, now: float) -> list[Action]:
        """Handle an awaited blob that is not available."""
        wanted = any(update.blob.digest == digest for news in self.incoming.queue for update in news.updates)
        if self.waiting is not None and digest in self.incoming.back and not wanted:
            return self._decline(self.waiting, "a delta that it takes back is not kept any more", now)
        return self.give_up()

    def _ask_at(self, task: Task) -> int:
        """Return the step after which to ask for the next task."""
        welcome = self.contact.welcome
        if task.preempts or welcome is None or not welcome.settings.overlap:
            return task.steps + 1
        return self.lead.ask_at(task.steps) if task.toll >= 1.0 else 0

    def _at_hand(self) -> bool:
        """Return whether the waiting task could start: its rows are here, and the replica is at its base."""
        task, incoming = self.waiting, self.incoming
        if task is None or self.files is None or incoming.updating:
            return False
        if task.preempts or not task.replica:
            return True
        if incoming.have < task.base or (not incoming.back and task.undoes):
            return False
        if not incoming.needs:
            return True
        rows = {blob.digest for blob in self.files.of(task)}
        return not (rows | incoming.back) & incoming.needs

    def _ask(self, now: float) -> list[Action]:
        if self._asked_at < math.inf or self.waiting is not None or self.incoming.updating or self.leaving:
            return []
        self._asked_at = now
        return [self.contact.send(RequestTask(self.incoming.have, self.contact.link), now)]

    def _watch(self, now: float) -> list[Action]:
        """Subscribe to the next version: once a task, and on until a version has its own work.

        No more than that, as a slow node's link is not for every version.
        """
        welcome = self.contact.welcome
        overlap = welcome is not None and welcome.settings.overlap
        training = self.running is not None and self.running.task.trains and not self.leaving
        if not overlap or not training or self.watching or not self.contact.greeted:
            return []
        self.watching = True
        return [self.contact.send(Subscribe(self.incoming.have), now)]

    def unanswered(self, now: float) -> bool:
        """Return whether the worker has had no work for long though it asked for a task.

        Or the waiting task's version is not on its way. Behind other transfers an answer takes its time.
        """
        if self.running is not None or self.outgoing.uploading or self.incoming.busy:
            self._busy_at = now
            return False
        since = max(self._asked_at if self.waiting is None else self._taken_at, self._busy_at)
        brought = INLINE_BYTES / max(self.contact.link.down / SLOWER, SLOWEST)  # attached to the answer, at most
        return now - since > ASK_PATIENCE + brought and not self._at_hand()

    def nearly(self, event: Nearly, now: float) -> list[Action]:
        if self.running is not None:
            self.running.near = self.running.task.id == event.assignment
        return self.go_on(now)

    def trained(self, event: Trained, now: float) -> list[Action]:
        """Start the next task while the update of the running one is encoded; in rounds, its result comes first."""
        welcome = self.contact.welcome
        if welcome is None or not welcome.settings.overlap or not self.encode(event.assignment):
            return []
        self.incoming.ended()
        return self._bring_up_to_date(now)

    def _ended(self, assignment: int) -> Running:
        """Return the task, whose result is there, or will not be."""
        if assignment not in self.encoding:
            self.incoming.ended()
        return self.end(assignment)

    def done(self, event: TaskDone, now: float) -> list[Action]:
        result = event.result
        running = self._ended(result.assignment)
        task = running.task
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
        if not self.contact.greeted:  # there is no session any more: the Welcome will settle it
            return next_ones
        return self.outgoing.add(result, now) + next_ones

    def failed(self, event: TaskFailed) -> None:
        """Record that a task has no result, for which this machine is to blame unless there is a reason.

        A task that began before the failure of another was known may have failed with it: the two count once.
        """
        ended = self._ended(event.assignment)
        if not event.reason:
            self.failures += not ended.follows
            self.mark_following()

    def leave(self) -> list[Action]:
        """Accept no more tasks; the running one ends after the current step."""
        self.leaving, self.waiting = True, None
        return self.incoming.forget() + ([CutShort()] if self.running is not None else [])
