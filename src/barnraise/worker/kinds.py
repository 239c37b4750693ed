"""What a worker does for each kind of task; `tasks` and `runtime` do the rest alike for all.

A kind is a function here that makes a task's result with the tensors of the worker, and a line in `KINDS`. Torch-free:
the tensors are the executor's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from barnraise.core.types import AnyResult, Flush, Task, Train, name_of

if TYPE_CHECKING:
    from barnraise.worker.executor import Executor  # imports torch

OnStep = Callable[[int], None]
Run = Callable[["Executor", Any, OnStep], AnyResult | None]
"""Carry a task out, saying of each step how many there are by now; None when nothing can be made of it."""


class Kind(NamedTuple):
    """How a kind of task is carried out. `preempts`: what runs is ended for it, and what waits is forgotten. `exact`:
    it is about its base version, so that no later one is taken in before it is done."""

    run: Run
    preempts: bool = False
    exact: bool = False


def _train(executor: Executor, task: Train, on_step: OnStep) -> AnyResult | None:
    return executor.train(task, on_step)


def _flush(executor: Executor, task: Flush, on_step: OnStep) -> AnyResult | None:
    return executor.flush(task)


KINDS: dict[type[Task], Kind] = {Train: Kind(_train), Flush: Kind(_flush, preempts=True)}

NAMES = tuple(map(name_of, KINDS))
"""What a worker says that it can do."""
