"""The session of a stateful worker, which trains on while its last update is encoded.

The training thread takes steps, and adds offsets to the parameters. All else that concerns updates happens in one
queue, in the order in which the training thread submits it: the update of each task is encoded, the offset to a new
version is prepared, an offset that was added is recorded, an answer is settled. So an offset is always made of all
updates before the running task, as if they had been encoded at once: it only comes some steps later.

    training thread:  task 1 | task 2        add offset   | task 3
    queue:                     encode 1, prepare offset, start of 2 += offset | encode 2

An update is the difference of its task's start and end, both copies of the parameters; the end of one is the start of
the next. Every offset that moves the parameters moves the start of the task that runs then, too, before that task is
encoded. So an offset is in no update, and each step is in exactly one.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from barnraise.core.threads import Crew, WorkQueue, finished, spans
from barnraise.core.types import Train
from barnraise.training.local import LocalTrainer
from barnraise.training.transfers import DONE, Transfer, host_vector
from barnraise.wire.messages import Downlink
from barnraise.worker.offsets import VersionOffset
from barnraise.worker.replica import Replica
from barnraise.worker.task_sessions import Ends, TaskSession
from barnraise.worker.update_path import Opened, SentUpdate, UpdatePath


class Offset(NamedTuple):
    """A movement to a version, `vector` (float32 [d]); and for the momentum that of all workers in `steps` steps."""

    vector: Tensor
    movement: Tensor | None
    steps: int


class StatefulSession(TaskSession):
    """The session of a worker that continues from the end of its last task, with its moments.

    A worker is at the newest version plus its own work that the version lacks: the residual, as far as it keeps it, its
    submitted updates, and the steps since `start`, these two weighted as they will be once they are merged (Kale et al.
    2025, "Eager Updates for Overlapped Communication and Computation in DiLoCo"; here in the midst of a round, too).
    Steps that are taken while an offset is prepared count in full until the next one. A lone worker trains on as if it
    had never submitted an update. The share `merge_lerp` of its own parameters stays (Douillard et al. 2025, "Streaming
    DiLoCo", section 2.3).

    Its vectors are kept: the residual, start and end of the update that is encoded, and one that is copied or prepared
    meanwhile. `made_first` of them are made before the first step.
    """

    made_first = 0

    def __init__(
        self,
        published: Replica,
        trainer: LocalTrainer,
        path: UpdatePath,
        *,
        downlink: Downlink,
        crew: Crew,
        queue: WorkQueue,
    ) -> None:
        super().__init__(published, trainer)
        self.path, self._downlink, self._crew, self._queue = path, downlink, crew, queue
        self.start: Tensor | None = None  # where the running task began, or the next one will; None: the version
        self.unmerged: dict[int, SentUpdate] = {}  # accepted or unanswered, and in no version so far; the queue's
        self._free: list[Tensor] = []
        self._free += [self._vector() for _ in range(self.made_first)]
        path.free = self._free.append
        self._here: Transfer = DONE  # the copy of the parameters to `start`
        self._loads = -1  # the number of loads after which the parameters are this session's
        self._prepared: Future[Offset] | None = None
        self._recorded: Future[None] = finished(None)  # the last record of an offset
        self._copying: ThreadPoolExecutor | None = None
        self._led_astray = False  # by the moments

    def begin(self, task: Train) -> None:
        anew = self.start is None
        if self.start is None:
            self.start = self._vector()
            with self.published.lock:
                self.start.copy_(self.published.parameters)
        if anew or self.trainer.flat.loads != self._loads:
            self._here.wait()
            self.trainer.load(self.start)
            self._loads = self.trainer.flat.loads
        else:
            self.trainer.anchor()
        self.take_in(task, 0)
        if anew and self._prepared is not None:
            self._move(task, self._prepared.result())
        if self.trainer.fresh and task.base > 0:
            self.trainer.ramp()

    def take_in(self, task: Train, step: int) -> None:
        if self._prepared is None and self.published.moved:
            start, (vector, copied) = self._running(), self._copy_out()
            self._prepared = self._queue.submit(lambda: self._offset(start, vector, copied, task))
        if self._prepared is not None and self._prepared.done():
            self._move(task, self._prepared.result())

    def end(self) -> Ends:
        self.await_encoding()  # one update waits for the queue at most
        start, (self.start, self._here) = self._running(), self._copy_out()
        return Ends(start, self.start, self._here, self.line)

    def failed(self, steps: int, line: int) -> None:
        """Drop moments that led astray; those of steps that were not taken stay valid."""
        self.lost = line
        self._led_astray |= steps > 0

    def recover(self) -> None:
        if not self.astray:
            return
        self._queue.submit(lambda: None).result()  # all before it is done
        if self._prepared is not None:
            self._free.append(self._prepared.result().vector)
        if self.start is not None:
            self._free.append(self.start)
        self.start = self._prepared = None
        if self._led_astray:
            self.trainer.forget()
        self._led_astray, self.line = False, self.line + 1

    def sent(self, number: int, update: SentUpdate) -> None:
        self.unmerged[number] = update

    def settled(self, number: int, accepted: bool) -> None:
        if not accepted:
            self.unmerged.pop(number, None)

    def _running(self) -> Tensor:
        assert self.start is not None, "a task has begun"
        return self.start

    def _vector(self) -> Tensor:
        size, device = len(self.published.parameters), self.trainer.device
        return self._free.pop() if self._free else host_vector(size, device)

    def _copy_out(self) -> tuple[Tensor, Transfer]:
        """Return a vector, and the copy of the present parameters to it."""
        if self._queue.beside and self._copying is None:
            self._copying = ThreadPoolExecutor(torch.get_num_threads(), "copy")
        vector = self._vector()
        return vector, self.trainer.copy_out(vector, self._copying)

    def _move(self, task: Train, offset: Offset) -> None:
        """Move the parameters, and let the queue record it."""
        self._prepared = None
        if offset.movement is not None:
            self.trainer.follow(offset.movement, offset.steps, task.learning_rate, self._downlink.version_momentum)
            self._used(offset.movement)
        start, added = self._running(), self.trainer.shift(offset.vector)

        def record() -> None:
            added.wait()
            self._record(start, offset.vector)
            self._free.append(offset.vector)

        self._recorded.result()  # raises the exception of the one before, if there was one
        self._recorded = self._queue.submit(record)

    def _record(self, start: Tensor, moved: Tensor) -> None:
        """Compute start += moved."""
        here, by = start.numpy(), moved.numpy()
        self._crew.each(lambda span: np.add(here[span], by[span], out=here[span]), spans(len(start)))

    def _offset(self, start: Tensor, here: Tensor, copied: Transfer, task: Train) -> Offset:
        """Return the movement from `here` (overwritten), where the task led that began at `start`, to the version."""
        copied.wait()
        published = self.published
        with published.lock:
            if not published.moved:  # it has become void since this was submitted
                return Offset(here.zero_(), None, 0)
            published.moved = False
            movement, steps = None, published.steps_moved
            if 2 * steps >= task.local_steps:  # else too few to measure a speed
                movement = published.take_movement()
                if movement is not None and published.share >= 1.0:  # a lone worker's momentum is the fleet's
                    published.reuse(movement)
                    movement = None
            self.unmerged = {key: payload for key, payload in self.unmerged.items() if key > published.merged}
            self._merge(start, here, [payload.opened(len(here)) for payload in self.unmerged.values()])
        return Offset(here, None if movement is None else self._brought(movement), steps)

    def _brought(self, movement: Tensor) -> Tensor:
        """Return the movement of versions, float32 [d] in main memory, where the trainer follows it."""
        return movement

    def _used(self, movement: Tensor) -> None:
        """Take the memory of a movement back that the trainer has followed."""
        self.published.reuse(movement)

    def _merge(self, start: Tensor, here: Tensor, unmerged: Sequence[Opened]) -> None:
        """Overwrite `here` with the offset, by all threads."""
        residual, keep = self.path.kept
        way = VersionOffset(
            there=self.published.parameters,
            start=start,
            unmerged=unmerged,
            share=self.published.share,
            residual=residual,
            keep=keep,
            rest=1.0 - self._downlink.merge_lerp,
        )
        way.overwrite(here, self._crew)
