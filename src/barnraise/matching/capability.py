"""A scheduler by task size and node speed."""

from __future__ import annotations

from collections.abc import Sequence

from .base import NodeId, NodeView, Scheduler, TaskId, TaskView
from .room import first_fit


class Capability(Scheduler):
    """Gives the largest task to the fastest node that can run it; links and priorities are ignored.

    Minimises the sum of work / speed when every node can run every task (the rearrangement inequality). Nodes whose
    speed is not measured come last.
    """

    def assign(self, tasks: Sequence[TaskView], nodes: Sequence[NodeView]) -> list[tuple[TaskId, NodeId]]:
        largest_first = sorted(tasks, key=lambda task: task.work, reverse=True)
        fastest_first = sorted(nodes, key=lambda node: node.speed, reverse=True)
        return first_fit(largest_first, fastest_first)
