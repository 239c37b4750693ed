"""The execution of each kind of task; `tasks` and `runtime` treat all kinds alike.

A kind is a function here that makes a task's result with the executor, and a line in `RUN`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from barnraise.core.errors import PayloadError
from barnraise.core.threads import finished
from barnraise.core.types import (
    AnyResult,
    Audit,
    Blob,
    Confirm,
    Endorse,
    Evaluate,
    Finding,
    Flush,
    Masked,
    Task,
    Train,
    Unmask,
    Vet,
)
from barnraise.wire.frames import Buffer

if TYPE_CHECKING:
    from barnraise.data.batches import Batch, Rows
    from barnraise.worker.task_executor import TaskExecutor
    from barnraise.worker.trustee import TrusteeExecutor

OnStep = Callable[[int], None]
Fetched = Callable[[Blob], Buffer]
Made = Future[AnyResult | None]
"""The result of a task, which may come later than its last step; None: no result."""

Run = Callable[["TaskExecutor", Any, Fetched, OnStep], Made]
"""Carries a task out, with the deltas it undoes `fetched`; `on_step` is called with the number of steps."""


def _train(executor: TaskExecutor, task: Train, fetched: Fetched, on_step: OnStep) -> Made:
    return cast("Made", executor.train(task, on_step))


def _audit(executor: TaskExecutor, task: Audit, fetched: Fetched, on_step: OnStep) -> Made:
    return finished(executor.audit(task, fetched, on_step))


def _flush(executor: TaskExecutor, task: Flush, fetched: Fetched, on_step: OnStep) -> Made:
    return cast("Made", executor.flush(task))


def _evaluate(executor: TaskExecutor, task: Evaluate, fetched: Fetched, on_step: OnStep) -> Made:
    return finished(_measured(executor, task, fetched, on_step))


def _measured(executor: TaskExecutor, task: Evaluate, fetched: Fetched, on_step: OnStep) -> Finding:
    """Measure the loss of a version on held-out rows.

    The replica stays at the task's base until this is done, as the task is exact. Where the version is not available,
    the finding has no steps: the work is given back.
    """
    import torch

    from barnraise.training.local import held_out_losses

    began, busy = time.monotonic(), executor.busy()
    rows, size, trainer = task.held_out, task.batch_size, executor.trainer
    held_out = executor.dataset.held_out_part(rows.start, rows.stop)
    try:
        trainer.load(executor.before(task, fetched))
    except (PayloadError, torch.OutOfMemoryError):
        nothing = time.monotonic() - began
        return Finding(assignment=task.id, base=task.version, steps=0, loss=0.0, seconds=nothing, weight=0)
    few = trainer.rows_at_once(executor.dataset.meta.context) or size  # rows of a batch, where memory is short
    starts = [range(start, min(start + size, len(held_out)), few) for start in range(0, len(held_out), size)]
    parts = (part for places in starts for part in _parts(executor, held_out, rows.start, places))
    losses = held_out_losses(trainer.problem, trainer.module, parts, str(trainer.device))
    total, weight, steps = 0.0, 0, 0
    for batch in starts:
        for loss, num_labels in islice(losses, len(batch)):
            total, weight = total + loss * num_labels, weight + num_labels
        steps += 1
        on_step(steps)
        executor.rest(began, busy)
        if executor.cut.is_set() and steps < task.steps:
            steps = 0  # a partial measurement is no answer
            break
    mean, seconds = total / weight if weight else 0.0, time.monotonic() - began
    return Finding(assignment=task.id, base=task.version, steps=steps, loss=mean, seconds=seconds, weight=weight)


def _parts(executor: TaskExecutor, held_out: Rows, first: int, places: range) -> Iterator[Batch]:
    """Yield a batch of held-out rows, which are those from `first` on, in parts that begin at `places`."""
    from barnraise.training.problem import careful

    chance = np.random.default_rng(first + places.start)
    rows = held_out[places.start : places.stop]
    problem = executor.trainer.problem
    with careful(problem):
        batch = problem.batch(rows, executor.dataset.meta, chance)
    for place in places:
        begin = place - places.start
        yield {name: array[begin : begin + places.step] for name, array in batch.items()}


def _vet(executor: Any, task: Vet, fetched: Fetched, on_step: OnStep) -> Made:
    trustee: TrusteeExecutor = executor
    return finished(trustee.vet(task))


def _endorse(executor: Any, task: Endorse, fetched: Fetched, on_step: OnStep) -> Made:
    trustee: TrusteeExecutor = executor
    return finished(trustee.endorse(task))


def _confirm(executor: Any, task: Confirm, fetched: Fetched, on_step: OnStep) -> Made:
    trustee: TrusteeExecutor = executor
    return finished(trustee.confirm(task))


def _unmask(executor: Any, task: Unmask, fetched: Fetched, on_step: OnStep) -> Made:
    trustee: TrusteeExecutor = executor
    return finished(trustee.unmask(task))


RUN: dict[type[Task], Run] = {
    Train: _train,
    Masked: _train,
    Flush: _flush,
    Evaluate: _evaluate,
    Audit: _audit,
    Vet: _vet,
    Endorse: _endorse,
    Confirm: _confirm,
    Unmask: _unmask,
}
