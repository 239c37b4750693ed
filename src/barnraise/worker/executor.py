"""Execution of a worker's tasks: the model's steps from published parameters, and unanswered updates.

The runtime calls `train` on one thread and `update` on another; they meet only in the replica. A third thread, the
queue, encodes updates while the next task trains. Elementwise work on these vectors is done in chunks, by as many
threads as torch has.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from itertools import islice
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from barnraise import compression
from barnraise.compression.feedback import gathered
from barnraise.core.errors import PayloadError, ProblemError
from barnraise.core.ranges import fault
from barnraise.core.sketches import sketch
from barnraise.core.threads import Crew, WorkQueue, finished
from barnraise.core.types import (
    Audit,
    Contribution,
    Evaluate,
    Flush,
    News,
    NodeProfile,
    Ranges,
    RowRange,
    Sketched,
    Train,
    Transcript,
)
from barnraise.data.batches import Batch, Rows, batches
from barnraise.data.shards import Dataset
from barnraise.models.exchange.record import Exchange, moments_behind
from barnraise.privacy.encryption.digits import num_digits
from barnraise.privacy.examples.poisson import poisson_batches
from barnraise.privacy.gaussian import SecretStream
from barnraise.training.local import LocalTrainer
from barnraise.training.problem import cautious
from barnraise.training.repeatable import Repeatable
from barnraise.wire.messages import Included, WorkerSettings
from barnraise.worker.device_session import DevicePath, DeviceSession
from barnraise.worker.encrypting import ModelKey, OpenedReplica, hiding
from barnraise.worker.masking import Mask, MaskedMember
from barnraise.worker.noise_stage import ClippedNoise
from barnraise.worker.past import Past, Perturbed, Versions
from barnraise.worker.protection_timer import ProtectionTimer
from barnraise.worker.replica import Fetched, Replica
from barnraise.worker.stateful import StatefulSession
from barnraise.worker.task_sessions import Ends, StatefulReplay, StatelessReplay, StatelessSession, TaskSession
from barnraise.worker.update_path import SentUpdate, UpdatePath

Floats = np.ndarray[Any, np.dtype[np.float32]]


class WorkerExecutor:
    """Runs tasks on `trainer` with rows of `dataset`.

    `slowdown` s makes every second of work take s + 1.
    """

    def __init__(self, trainer: LocalTrainer, dataset: Dataset, settings: WorkerSettings, slowdown: float = 0.0):
        self.uplink, self.downlink = uplink, downlink = settings.uplink, settings.downlink
        given: list[dict[str, float]] = [{"ratio": ratio} for ratio in uplink.ratios] or [{}]
        self.codecs = [compression.create(uplink.codec, **uplink.options | one) for one in given]
        layout, self.trainer, self.dataset, self.slowdown = trainer.flat.layout, trainer, dataset, slowdown
        digits = num_digits(layout.size) if uplink.encryption is not None else 0
        exchange = Exchange(layout, moments_behind(layout) if settings.shares else None, digits=digits)
        decoder = compression.create(downlink.codec, **downlink.options)
        follows = downlink.version_momentum != 0.0 or settings.stateless
        self.published = Replica(exchange.exchanged, decoder, follows=follows, last=settings.stateless)
        self._crew, self._timer = Crew(torch.get_num_threads(), gives_way=True), ProtectionTimer()
        self.model = OpenedReplica(layout.size, self.published, self._timer) if digits else self.published
        last = compression.create(uplink.last) if uplink.last else None
        self.sent_in = [*self.codecs, *([last] if last else [])]  # by the number in a contribution
        for codec in self.sent_in:
            codec.crew = self._crew
        on_device = trainer.exchanges_on_device and self.codecs[0].selects_on_devices and not settings.stateless
        masks, private = uplink.masks, settings.private
        self.path = (DevicePath if on_device else UpdatePath)(
            self.codecs[0],
            error_feedback=uplink.error_feedback,
            decay=uplink.decay,
            keep=uplink.keep,
            fragments=settings.fragments > 1,
            update_clip=uplink.clip,
            last=last,
            crew=self._crew,
            mask=hiding(settings, self.codecs[0], self.model, self._timer),
        )
        if private is not None and not private.rate:
            noise = private.noise if masks is None or not masks.deviation else 0.0  # it is added under the masks
            self.path.insert(ClippedNoise(private.clip, noise, self._crew, self._timer))
        self._private, self._stream, self._exchange, self.queue = private, SecretStream(), exchange, WorkQueue()
        self.course: TaskSession = (
            StatelessSession(self.model, trainer, Repeatable(trainer, exchange))
            if settings.stateless
            else (DeviceSession if on_device else StatefulSession)(
                self.model, trainer, self.path, downlink=downlink, crew=self._crew, queue=self.queue
            )
        )
        self.payloads: dict[int, SentUpdate] = {}
        self._told_skipped = 0
        self.cut, self.leaving = threading.Event(), threading.Event()
        # Waiting for a crowded core is not work: counted as such it would slow a slow worker two times.
        self.busy = time.thread_time if trainer.device.type == "cpu" else time.monotonic

    @property
    def replica(self) -> Tensor:
        """Return the replica's version, float32 [d]."""
        return self.model.parameters

    def update(self, news: News, fetched: Fetched) -> int:
        """Apply the updates of `news` to the replica, in a task after its step: its version, or -1 when it is void."""
        return self.published.update(news, fetched)

    def rest(self, began: float, busy: float) -> None:
        """Idle for a slowed machine's share of the time since `began`, when its clock of work was at `busy`."""
        if self.slowdown > 0.0:
            self.cut.wait(max(0.0, began + (1.0 + self.slowdown) * (self.busy() - busy) - time.monotonic()))

    def encode_on(self, pool: Executor) -> None:
        """Encode updates on this pool of one thread from now on, while the next task trains."""
        self.queue.move_to(pool)

    def flush(self, task: Flush) -> Future[Contribution]:
        """Submit the residual that error feedback holds."""
        began = time.monotonic()

        def contribution() -> Contribution:
            payload = self.payloads[task.id] = self.path.flush(len(self.replica))
            codec, seconds = self.sent_in.index(payload.codec), time.monotonic() - began
            return Contribution.of(task, payload.blob, codec=codec, steps=0, seconds=seconds)

        return self.queue.submit(contribution)

    def train(self, task: Train, on_step: Callable[[int], None]) -> Future[Contribution | None]:
        """Take the task's local steps, and let the queue encode the change of the parameters.

        `on_step` is called after each step with their number so far. None when no step could be taken, or they led to
        parameters that are not finite: they are dropped, and the next task starts from the published version.
        """
        began, busy, course = time.monotonic(), self.busy(), self.course
        self.model.require()
        course.begin(task)

        def after_step(step: int) -> bool:
            self.model.steps += 1
            on_step(step)
            self.rest(began, busy)
            course.take_in(task, step)
            return not (self.cut.is_set() or course.astray)

        try:
            steps, loss = self._steps(self.trainer, task, after_step)
            if not steps and self.trainer.raised:
                raise ProblemError(self.trainer.raised)
        except ProblemError:
            course.drop()
            raise
        if not steps or course.astray:
            course.drop()
            return finished(None)
        ends, told, seconds = course.end(), course.transcript, time.monotonic() - began
        self._timer.trained(seconds)

        def contribution() -> Contribution | None:
            if (sent := self._sent(task, ends, steps)) is None:
                return None
            codec = self.sent_in.index(sent.codec)
            told_loss = loss if self._private is None else 0.0  # withheld: no noise covers it
            found = Contribution.of(task, sent.blob, codec=codec, steps=steps, loss=told_loss, seconds=seconds)
            return msgspec.structs.replace(found, transcript=told)

        encoding = course.encoding = self.queue.submit(contribution)
        course.recover()
        return encoding

    def _sent(self, task: Train, ends: Ends, steps: int) -> SentUpdate | None:
        """Encode and keep the update of a task; None when it is not finite."""
        ends.copied.wait()
        try:
            if ends.line == self.course.lost:
                raise PayloadError("the task began in numbers that are not finite")
            payload = self._encoded(task, ends, steps, leaving=self.leaving.is_set())
        except PayloadError:
            self.course.failed(steps, ends.line)
            return None
        self.payloads[task.id] = payload
        self.course.sent(task.id, payload)
        return payload

    def _encoded(self, task: Train, ends: Ends, steps: int, *, leaving: bool = False) -> SentUpdate:
        """Encode the update of `steps` steps of the task, which led from one end (overwritten) to the other."""
        self.path.codec = self.codecs[task.rung]
        if self.path.mask is not None:
            age = max(0, self.published.version - task.base)
            self.path.mask.begin(task, steps, age, self.published.digest_of(task.base))
        covered, scale, (start, reached) = self._covered(task), self.scale(steps), ends[:2]
        return self.path.send(start, reached, version=task.support, covered=covered, scale=scale, leaving=leaving)

    def _covered(self, task: Train) -> Ranges:
        """Return the parameters that a task updates, all by a ciphertext; PayloadError where the vector lacks some."""
        if reason := fault(task.parameters, len(self.published.parameters)):
            raise PayloadError(f"the ranges of task {task.id}: {reason}")
        return task.parameters if self.model is self.published else (0, len(self.replica))

    def before(self, task: Evaluate, fetched: Fetched) -> Tensor:
        """Return the version that a task measures: the replica, or a copy in which deltas are undone."""
        self.model.require()
        if not task.back:
            return self.replica
        return self.model.read(Past(self.published, task.base, task.back, fetched).at(task.version))

    def audit(self, task: Audit, fetched: Fetched, on_step: Callable[[int], None]) -> Sketched:
        """Repeat `task.train`: a stateless one by its transcript, any other one as a node without state.

        That is without moments, residual, or versions taken in. A repetition that fails here (cut short, too little
        memory, not finite) has 0 steps: another node's task is no failure of this worker's.
        """
        began, trainer, told, found = time.monotonic(), self.trainer.anew(), task.transcript, None
        with contextlib.suppress(PayloadError, ProblemError, torch.OutOfMemoryError):
            versions: Versions = Past(self.published, task.base, task.back, fetched)
            if task.perturbation:
                versions = Perturbed(versions, task.perturbation, task.id)
            if told is None:
                found = self._anew(task.train, StatefulReplay(self.published, trainer, versions), on_step)
            elif (again := self.again(task.train, told, versions, on_step)) is not None:
                found = again[0].decoded(), again[1]
        update, loss = found or (np.zeros(1, np.float32), 0.0)
        return Sketched(
            assignment=task.id,
            base=task.base,
            steps=task.steps if found else 0,
            loss=loss,
            seconds=time.monotonic() - began,
            sketch=sketch(lambda begin, out: np.copyto(out, update[begin : begin + out.size]), update.size, task.seed),
        )

    def again(
        self,
        task: Train,
        transcript: Transcript,
        versions: Versions,
        on_step: Callable[[int], None] = lambda step: None,
    ) -> tuple[SentUpdate, float] | None:
        """Repeat a stateless task by its transcript; return its encoded update and its loss, None when it fails.

        Raises PayloadError where a version is not available.
        """
        trainer = self.trainer.anew()
        course = StatelessReplay(self.published, trainer, versions, transcript=transcript, exchange=self._exchange)
        if (gone := self._gone_through(task, course, on_step)) is None:
            return None
        steps, loss, ends = gone
        return self.queue.submit(lambda: self._encoded(task, ends, steps)).result(), loss

    def _anew(self, task: Train, course: TaskSession, on_step: Callable[[int], None]) -> tuple[Floats, float] | None:
        """Return the update of a stateful task, before it is compressed, and its loss."""
        if (gone := self._gone_through(task, course, on_step)) is None:
            return None
        steps, loss, ends = gone
        update: Floats = gathered(ends.start.sub_(ends.reached), self._covered(task)).numpy()
        if not np.isfinite(update).all():
            return None
        update *= self.scale(steps)
        return update, loss

    def _gone_through(
        self, task: Train, course: TaskSession, on_step: Callable[[int], None]
    ) -> tuple[int, float, Ends] | None:
        """Return the steps, the loss, and the two ends of the update; None unless all batches were processed."""
        began, busy, batches_done = time.monotonic(), self.busy(), 0
        course.begin(task)

        def after_step(step: int) -> bool:
            nonlocal batches_done
            batches_done = step
            on_step(step)
            self.rest(began, busy)
            course.take_in(task, step)
            return not self.cut.is_set()

        steps, loss = self._steps(course.trainer, task, after_step)
        ends = course.end()
        done = batches_done >= task.local_steps and steps and _finite(ends.reached)
        return (steps, loss, ends) if done else None

    def _steps(self, trainer: LocalTrainer, task: Train, after_step: Callable[[int], bool]) -> tuple[int, float]:
        """Take the task's steps on its rows: how many were taken, and their mean loss."""
        with torch.random.fork_rng(devices=[]):  # dropout's randomness is the task's own, apart from the process's
            torch.manual_seed(task.batches.seed)
            return trainer.run(self.batches(task), task.learning_rate, after_step)

    def batches(self, task: Train) -> Iterator[Batch]:
        """Yield the batches of the task's steps."""
        make, skip, private = self.trainer.problem.batch, task.batches.skip, self._private
        if private is not None and private.rate:
            parts, form = self._rows(self.dataset.distinct(task.rows)), self.dataset.meta
            parts = parts or [self.dataset.rows(0, 0, 1)[:0]]  # all are behind a site's last row: batches of none
            return poisson_batches(
                parts, form, rate=private.rate, steps=task.local_steps, stream=self._stream, make=make
            )
        whole = batches(self._rows(task.rows), task.batches, self.dataset.meta, make)
        return cautious(self.trainer.problem, islice(whole, skip, skip + task.local_steps))

    def scale(self, steps: int) -> float:
        """Return the scale of an update of `steps` steps (Wang et al. 2020, "FedNova", with tau_eff fixed).

        With it, nodes that take more steps have no more weight.
        """
        return self.uplink.normalize_steps / steps if self.uplink.normalize_steps else 1.0

    def _rows(self, ranges: Iterable[RowRange]) -> list[Rows]:
        return [self.dataset.rows(rows.shard, rows.start, rows.stop) for rows in ranges]

    def settle(self, assignment: int, accepted: bool) -> Future[None]:
        """Drop the payload, which the controller has answered (or will not); a refused update goes to the residual."""

        def drop() -> None:
            payload = self.payloads.pop(assignment, None)
            if payload is not None:
                self.path.settle(payload, accepted)
            self.course.settled(assignment, accepted)

        return self.queue.submit(drop)

    def identify(self, member: MaskedMember) -> None:
        """Tell the stage of masks whose updates it hides."""
        if isinstance(self.path.mask, Mask):
            self.path.mask.membership = member

    def unlock(self, key: ModelKey) -> None:
        """Give the key to the model's replica, which decrypts versions, and thereby to the stage that encrypts."""
        assert isinstance(self.model, OpenedReplica), "versions are encrypted"
        self.model.key = key

    @property
    def overhead(self) -> float:
        """Return alpha of the protections as measured, 0 where it is not known."""
        return self._timer.overhead

    def prove(self, told: Included) -> str:
        """Return why it is not proven that a version has this process's masked update; empty when it is."""
        return self.path.mask.prove(told) if isinstance(self.path.mask, Mask) else "this run masks no updates"

    def newly_skipped(self) -> tuple[int, str]:
        """Return how many steps the trainer skipped since the last call, and why; 0 and "" where it skipped none."""
        skipped, self._told_skipped = self.trainer.skipped - self._told_skipped, self.trainer.skipped
        return skipped, self.trainer.why_skipped if skipped else ""

    def measure(self, profile: NodeProfile, batch_size: int, seconds: float = 0.5) -> NodeProfile:
        """Return `profile` with the machine's training speed, measured for about `seconds` on random rows.

        Rows are of the median length (that of half of all tokens is less, of half more) or the longest below that for
        which there is room. A batch has one row at first, and more as long as a step is short: a controller's batch may
        take minutes here.
        """
        meta, most = self.dataset.meta, self.trainer.tokens_at_once or math.inf
        shorter = meta.lengths[: len(meta.lengths) // 2 + 1]
        length = max((length for length in shorter if length <= most), default=shorter[0])
        most_rows = min(batch_size, self.trainer.rows_at_once(length) or batch_size)
        num_rows = 1
        while True:
            batch = self.trainer.problem.trial_batch(meta, num_rows, length)
            took = min(self._seconds_of_step(batch) for _ in range(2))  # the first of its size takes longer
            if num_rows >= most_rows or took > seconds / 8:
                break
            num_rows = min(most_rows, 4 * num_rows)
        began, steps = time.monotonic(), 0
        while steps < 3 or time.monotonic() - began < seconds:
            self.trainer.step(batch, 0.0)
            steps += 1
        took = time.monotonic() - began
        self._timer.rows = self.trainer.row_overhead(batch)
        self.trainer.forget()  # moments of random rows are useless
        rate = steps * num_rows * length / took / (1.0 + self.slowdown)
        return NodeProfile(rate, profile.memory_bytes, profile.cores, profile.device)

    def _seconds_of_step(self, batch: Batch) -> float:
        """Return the seconds of a step that does not move the parameters."""
        began = time.monotonic()
        self.trainer.step(batch, 0.0)
        return time.monotonic() - began


def _finite(vector: Tensor) -> bool:
    low, high = torch.aminmax(vector)  # NaN, where there is one
    return math.isfinite(float(low)) and math.isfinite(float(high))
