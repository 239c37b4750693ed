"""A scheduler in order of arrival: first come, first served."""

from __future__ import annotations

from collections.abc import Sequence

from .base import NodeId, NodeView, Scheduler, TaskId, TaskView
from .room import first_fit


class Fifo(Scheduler):
    """Gives the oldest task to the first node that asked and can run it.

    O(1) for one node that can run the oldest.
    """

    def assign(self, tasks: Sequence[TaskView], nodes: Sequence[NodeView]) -> list[tuple[TaskId, NodeId]]:
        return first_fit(tasks, nodes)
