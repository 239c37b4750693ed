"""A scheduler by priority of tasks."""

from __future__ import annotations

from collections.abc import Sequence

from .base import NodeId, NodeView, Scheduler, TaskId, TaskView
from .room import first_fit


class Priority(Scheduler):
    """Places the most urgent task first, the oldest of equals, each on the first node that can run it."""

    def assign(self, tasks: Sequence[TaskView], nodes: Sequence[NodeView]) -> list[tuple[TaskId, NodeId]]:
        return first_fit(sorted(tasks, key=lambda task: task.priority, reverse=True), nodes)
