"""Where a training task begins, how it takes versions in on its way, and what its update is the difference of.

A worker either continues from where its last task ended (`StatefulSession`), or starts each task from what is published
alone (`StatelessSession`), so that any node can repeat it. `StatefulReplay` and `StatelessReplay` repeat the task of
another node for an audit.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from barnraise.core.ranges import overlap
from barnraise.core.threads import SERIAL, Crew, spans
from barnraise.core.types import MOST_TAKEN, Taken, Train, Transcript
from barnraise.models.exchange.record import Exchange
from barnraise.training.local import LocalTrainer
from barnraise.training.repeatable import Repeatable
from barnraise.wire.messages import Downlink
from barnraise.worker.past import Versions
from barnraise.worker.replica import Replica
from barnraise.worker.update_path import Opened, SentUpdate, UpdatePath


class TaskSession:
    """One task after the other, with the versions of `published` and the steps of `trainer`."""

    transcript: Transcript | None = None  # that of the last task

    def __init__(self, published: Replica, trainer: LocalTrainer) -> None:
        self.published, self.trainer = published, trainer

    def begin(self, task: Train) -> None:
        """Prepare the trainer for the first step."""
        raise NotImplementedError

    def take_in(self, task: Train, step: int) -> None:
        """Continue from the newest version after `step` steps, if it is another."""

    def end(self) -> tuple[Tensor, Tensor]:
        """Return the two vectors whose difference is the update, float32 [size]; the first may be overwritten."""
        raise NotImplementedError

    def failed(self, steps: int) -> None:
        """Handle a task that failed after `steps` steps."""

    def sent(self, number: int, update: SentUpdate) -> None:
        """Record that the update of assignment `number` is on its way."""

    def settled(self, number: int, accepted: bool) -> None:
        """Record that the controller has answered, or will not."""


class StatefulSession(TaskSession):
    """The session of a stateful worker: it continues from the end of its last task, with its moments.

    A worker is at the newest version plus its own work that the version lacks: the residual, as far as it keeps it, its
    submitted updates, and the steps since `start`, these two weighted as they will be once they are merged (Kale et al.
    2025, "Eager Updates for Overlapped Communication and Computation in DiLoCo"; here in the midst of a round, too). A
    lone worker trains on as if it had never submitted an update. The share `merge_lerp` of its own parameters stays
    (Douillard et al. 2025, "Streaming DiLoCo", section 2.3).
    """

    def __init__(
        self, published: Replica, trainer: LocalTrainer, path: UpdatePath, downlink: Downlink, crew: Crew
    ) -> None:
        super().__init__(published, trainer)
        self.path, self._downlink, self._crew = path, downlink, crew
        self.start = torch.empty_like(published.parameters)  # parameters at the running task's start
        self.reached: Tensor | None = None  # parameters at the last task's end
        self.unmerged: dict[int, SentUpdate] = {}  # accepted or unanswered, and in no version so far

    def begin(self, task: Train) -> None:
        with self.published.lock:
            self.start.copy_(self.reached if self.reached is not None else self.published.parameters)
        self._take_in(self.start, task)
        self.trainer.load(self.start)
        if self.trainer.fresh and task.base > 0:
            self.trainer.ramp()

    def take_in(self, task: Train, step: int) -> None:
        if not self.published.moved:
            return
        here = self.trainer.flat.vector.cpu()
        offset = here.clone()
        self._take_in(offset, task)
        offset.sub_(here)
        self.start.add_(offset)
        self.trainer.shift(offset)

    def end(self) -> tuple[Tensor, Tensor]:
        here = self.trainer.flat.vector.cpu()
        self.reached = here.clone() if self.reached is None else self.reached.copy_(here)
        return self.start, self.reached

    def failed(self, steps: int) -> None:
        """Drop moments that led astray; those of steps that were not taken stay valid."""
        self.reached = None
        if steps:
            self.trainer.forget()

    def sent(self, number: int, update: SentUpdate) -> None:
        self.unmerged[number] = update

    def settled(self, number: int, accepted: bool) -> None:
        if not accepted:
            self.unmerged.pop(number, None)

    def _take_in(self, parameters: Tensor, task: Train) -> None:
        """Move `parameters` to the newest version, if there is one.

        The task that began at `start` has led to them.
        """
        published = self.published
        with published.lock:
            if not published.moved:
                return
            published.moved = False
            movement, steps = published.movement, published.steps
            if 2 * steps >= task.local_steps and movement is not None:  # else too few to measure a speed
                if published.share < 1.0:  # a lone worker's momentum is the fleet's
                    self.trainer.follow(movement, steps, task.learning_rate, self._downlink.version_momentum)
                published.forget_movement()
            self.unmerged = {key: payload for key, payload in self.unmerged.items() if key > published.merged}
            self._merge(parameters, [payload.opened(len(parameters)) for payload in self.unmerged.values()])

    def _merge(self, parameters: Tensor, unmerged: Sequence[Opened]) -> None:
        """Run `_take_in` by all threads."""
        replica, share = self.published.parameters, self.published.share

        def merge(span: slice) -> None:
            moved = replica.numpy()[span].copy()
            for covered, reader in unmerged:
                for part in overlap(covered, span.start, span.stop):
                    reader.add(part.place, moved[part.start - span.start : part.stop - span.start], -share)
            for few in spans(moved.size, SERIAL):
                here, there = slice(span.start + few.start, span.start + few.stop), torch.from_numpy(moved[few])
                there.add_(parameters[here] - self.start[here], alpha=share)
                self.path.add_kept(there, here)
                parameters[here].lerp_(there, 1.0 - self._downlink.merge_lerp)

        self._crew.each(merge, spans(len(parameters)))


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
            published.moved = False
            self._once.take_in(published.parameters)
            self._taken.append(Taken(step, published.version))

    def end(self) -> tuple[Tensor, Tensor]:
        self.transcript = Transcript(self._begun.start, self._batches, self._begun.moved, tuple(self._taken))
        return self._once.end()


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

    def end(self) -> tuple[Tensor, Tensor]:
        return self._start, self.trainer.flat.vector.cpu()


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

    def end(self) -> tuple[Tensor, Tensor]:
        return self._once.end()
