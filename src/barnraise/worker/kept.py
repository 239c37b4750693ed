"""The state that a worker keeps on its disk from one process to the next: moments, replica, and its owner's budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnraise.core.errors import LimitReachedError
from barnraise.core.types import AnyTask, News, Train
from barnraise.worker.task_executor import TaskExecutor

if TYPE_CHECKING:
    from barnraise.worker.moments import Moments
    from barnraise.worker.owner_budget import OwnerBudget
    from barnraise.worker.replica_file import ReplicaFile  # these import torch


class Kept:
    """The files of one worker; None for those that it does not keep."""

    def __init__(
        self,
        executor: TaskExecutor,
        moments: Moments | None,
        replica: ReplicaFile | None,
        budget: OwnerBudget | None = None,
    ) -> None:
        self._executor, self._moments, self._replica, self._budget = executor, moments, replica, budget

    def count(self, task: AnyTask) -> None:
        """Count a task against the owner's budget, before it begins; LimitReachedError where that has no room."""
        if self._budget is None or not isinstance(task, Train):
            return
        if reason := self._budget.begin(task, self._executor.dataset.distinct(task.rows)):
            raise LimitReachedError(reason)

    def moments_if_due(self) -> None:
        """Write the moments if it is time; on the training thread, between two tasks."""
        if self._moments is not None:
            self._moments.keep_if_due(self._executor.trainer)

    def followed(self, news: News, version: int) -> None:
        """Record an update of the replica, and write it if it is time; on the thread that updates it."""
        if self._replica is not None:
            self._replica.followed(self._executor.published, news, version)

    def last_moments(self) -> None:
        """Write the moments of a worker that leaves; on the training thread."""
        if self._moments is not None:
            self._moments.keep(self._executor.trainer)

    def last_replica(self) -> None:
        """Write the replica of a worker that leaves; on the thread that updates it."""
        if self._replica is not None:
            self._replica.keep_last(self._executor.published)
