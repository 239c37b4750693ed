"""Where a training task begins, how it takes versions in on its way, and what its update is the difference of.

A worker either continues from where its last task ended (`stateful.StatefulSession`), or starts each task from what is
published alone (`StatelessSession`), so that any node can repeat it. `StatefulReplay` and `StatelessReplay` repeat the
task of another node for an audit.
"""

from __future__ import annotations

from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor

from barnraise.core.threads import finished
from barnraise.core.types import MOST_TAKEN, Taken, Train, Transcript
from barnraise.models.exchange.record import Exchange
from barnraise.training.local import LocalTrainer
from barnraise.training.repeatable import Repeatable
from barnraise.training.transfers import DONE, Transfer
from barnraise.worker.past import Versions
from barnraise.worker.replica import Replica
from barnraise.worker.update_path import SentUpdate


class Ends(NamedTuple):
    """The two vectors whose difference is an update, float32 [size]; the first may be overwritten.

    The second is there when it is `copied`. `line` is the session's at that time.
    """

    start: Tensor
    reached: Tensor
    copied: Transfer = DONE
    line: int = 0


class TaskSession:
    """One task after the other, with the versions of `published` and the steps of `trainer`.

    A session begins a new `line` of tasks, each from the end of the one before, when the last line is `lost`: numbers
    that are not finite led to the next task, too. The update of the last task is `encoding` while the next one runs.
    """

    transcript: Transcript | None = None  # that of the last task

    def __init__(self, published: Replica, trainer: LocalTrainer) -> None:
        self.published, self.trainer = published, trainer
        self.line, self.lost = 0, -1
        self.encoding: Future[Any] = finished(None)

    @property
    def astray(self) -> bool:
        """Return whether the running task, or the next, is of a lost line."""
        return self.lost == self.line

    def await_encoding(self) -> None:
        """Return once the last update is encoded, or never will be; its exception is the concern of its task."""
        with suppress(CancelledError):  # `wait` never returns for a future that is cancelled as its pool shuts down
            self.encoding.exception()

    def begin(self, task: Train) -> None:
        """Prepare the trainer for the first step."""
        raise NotImplementedError

    def take_in(self, task: Train, step: int) -> None:
        """Continue from the newest version after `step` steps, if it is another."""

    def end(self) -> Ends:
        """Return the two ends of the update."""
        raise NotImplementedError

    def failed(self, steps: int, line: int) -> None:
        """Handle a task of that line that failed after `steps` steps."""

    def recover(self) -> None:
        """Begin a new line if this one is lost."""

    def drop(self) -> None:
        """Drop the running task, whose steps were not taken, or of a lost line; the update before it stays."""
        self.await_encoding()
        self.failed(0, self.line)
        self.recover()

    def sent(self, number: int, update: SentUpdate) -> None:
        """Record that the update of assignment `number` is on its way."""

    def settled(self, number: int, accepted: bool) -> None:
        """Record that the controller has answered, or will not."""


class StatelessSession(TaskSession):
    """A stateless session: each task begins at the newest version that is here, with its published moments."""

    def __init__(self, published: Replica, trainer: LocalTrainer, once: Repeatable) -> None:
        super().__init__(published, trainer)
        self._once, self._begun = once, Transcript(0, 0)
        self._taken: list[Taken] = []
        self._batches = 0

    def begin(self, task: Train) -> None:
        published = self.published
        with published.lock:
            published.moved = False
            self._once.begin(published.version, published.parameters, published.movement, task.pace or 0.0)
            self._begun = Transcript(published.version, 0, published.movement is not None)
        self._taken, self._batches = [], 0

    def take_in(self, task: Train, step: int) -> None:
        self._batches, published = step, self.published
        if not published.moved or len(self._taken) == MOST_TAKEN:
            return
        with published.lock:
            if not published.moved:  # it has become void meanwhile
                return
            published.moved = False
            self._once.take_in(published.parameters)
            self._taken.append(Taken(step, published.version))

    def end(self) -> Ends:
        self.transcript = Transcript(self._begun.start, self._batches, self._begun.moved, tuple(self._taken))
        return Ends(*self._once.end())


class StatefulReplay(TaskSession):
    """Repeats another node's stateful task as a worker without state: no version is taken in."""

    def __init__(self, published: Replica, trainer: LocalTrainer, versions: Versions) -> None:
        super().__init__(published, trainer)
        self._versions, self._start = versions, torch.empty(0)

    def begin(self, task: Train) -> None:
        self._start = self._versions.at(task.base)
        self.trainer.load(self._start)
        if task.base > 0:
            self.trainer.ramp()

    def end(self) -> Ends:
        return Ends(self._start, self.trainer.flat.vector.cpu())


class StatelessReplay(TaskSession):
    """Repeats a stateless task by its `transcript`."""

    def __init__(
        self,
        published: Replica,
        trainer: LocalTrainer,
        versions: Versions,
        *,
        transcript: Transcript,
        exchange: Exchange,
    ) -> None:
        super().__init__(published, trainer)
        self._versions, self._told, self._once = versions, transcript, Repeatable(trainer, exchange)
        self._left = list(transcript.taken)

    def begin(self, task: Train) -> None:
        start = self._told.start
        movement = self._versions.movement(start) if self._told.moved else None
        self._once.begin(start, self._versions.at(start), movement, task.pace or 0.0)

    def take_in(self, task: Train, step: int) -> None:
        while self._left and self._left[0].step <= step:
            self._once.take_in(self._versions.at(self._left.pop(0).version))

    def end(self) -> Ends:
        return Ends(*self._once.end())
