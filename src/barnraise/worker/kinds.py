"""How each kind of task is carried out; `tasks` and `runtime` do the rest alike for all.

A kind is a function here that makes a task's result with what the executor has, and a line in `RUN`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barnraise.core.types import AnyResult, Flush, Task, Train

if TYPE_CHECKING:
    from barnraise.worker.task_executor import TaskExecutor

OnStep = Callable[[int], None]
Run = Callable[["TaskExecutor", Any, OnStep], AnyResult | None]
"""Carry a task out, saying of each step how many there are by now; None when nothing can be made of it."""


def _train(executor: TaskExecutor, task: Train, on_step: OnStep) -> AnyResult | None:
    return executor.train(task, on_step)


def _flush(executor: TaskExecutor, task: Flush, on_step: OnStep) -> AnyResult | None:
    return executor.flush(task)


RUN: dict[type[Task], Run] = {Train: _train, Flush: _flush}
