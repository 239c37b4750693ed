"""The files of rows that a worker's tasks name: those of the run, fetched as tasks need them, or none for own rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from barnraise.core.types import Audit, Blob, Evaluate, Task


@dataclass(frozen=True)
class RowFiles:
    """The run's token shards in order and last the held-out rows; `own`: tasks name this worker's own rows instead.

    `silent`: the loss on own held-out rows is not released.
    """

    blobs: Sequence[Blob]
    own: bool = False
    silent: bool = False

    def fault(self, task: Task) -> str:
        """Return why the rows of a task cannot exist; "" where they can."""
        if self.own and isinstance(task, Audit):
            return "a task repeats work on rows that stay with their node, which no run of this kind needs"
        if self.silent and isinstance(task, Evaluate):
            return "a task measures held-out rows whose loss their owner does not release"
        last = max((rows.shard for rows in task.rows), default=0)
        if self.own or last < len(self.blobs):
            return ""
        return f"a task names the rows of file {last}, but there are {len(self.blobs)}"

    def of(self, task: Task) -> list[Blob]:
        """Return the files that a task needs."""
        return [] if self.own else [self.blobs[rows.shard] for rows in task.rows]
