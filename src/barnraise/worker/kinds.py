"""How each kind of task is carried out; `tasks` and `runtime` do the rest alike for all.

A kind is a function here that makes a task's result with what the executor has, and a line in `RUN`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from barnraise.core.types import AnyResult, Evaluate, Finding, Flush, Task, Train

if TYPE_CHECKING:
    from barnraise.worker.task_executor import TaskExecutor

OnStep = Callable[[int], None]
Run = Callable[["TaskExecutor", Any, OnStep], AnyResult | None]
"""Carry a task out, saying of each step how many there are by now; None when nothing can be made of it."""


def _train(executor: TaskExecutor, task: Train, on_step: OnStep) -> AnyResult | None:
    return executor.train(task, on_step)


def _flush(executor: TaskExecutor, task: Flush, on_step: OnStep) -> AnyResult | None:
    return executor.flush(task)


def _evaluate(executor: TaskExecutor, task: Evaluate, on_step: OnStep) -> AnyResult | None:
    """The replica stays at the task's base until this is done, as the task is exact."""
    from barnraise.data.shards import labels
    from barnraise.training.local import held_out_losses

    began, busy = time.monotonic(), executor.busy()
    rows, size = task.held_out, task.batch_size
    held_out = executor.dataset.held_out()[rows.start : rows.stop]
    executor.trainer.load(executor.replica)
    batches = (held_out[start : start + size] for start in range(0, len(held_out), size))
    labelled = ((batch.astype(np.int64), labels(batch, executor.dataset.meta)) for batch in batches)
    total, weight, steps = 0.0, 0, 0
    for loss, num_labels in held_out_losses(executor.trainer.module, labelled, str(executor.trainer.device)):
        total, weight, steps = total + loss * num_labels, weight + num_labels, steps + 1
        on_step(steps)
        executor.rest(began, busy)
        if executor.cut.is_set() and steps < task.steps:
            steps = 0  # a part of it is no answer
            break
    mean, seconds = total / weight if weight else 0.0, time.monotonic() - began
    return Finding(assignment=task.id, base=task.base, steps=steps, loss=mean, seconds=seconds, weight=weight)


RUN: dict[type[Task], Run] = {Train: _train, Flush: _flush, Evaluate: _evaluate}
