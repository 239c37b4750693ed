"""The state that a worker keeps on its disk from one process to the next: its moments, and its replica."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnraise.core.types import News
from barnraise.worker.task_executor import TaskExecutor

if TYPE_CHECKING:
    from barnraise.worker.moments import Moments
    from barnraise.worker.replica_file import ReplicaFile  # these import torch


class Kept:
    """The files of one worker; None for those that it does not keep."""

    def __init__(self, executor: TaskExecutor, moments: Moments | None, replica: ReplicaFile | None) -> None:
        self._executor, self._moments, self._replica = executor, moments, replica

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
