"""First fit over three orders of the queue: fifo, priority, capability."""

from __future__ import annotations

from collections.abc import Sequence

from .base import NodeId, NodeView, Scheduler, TaskId, TaskView, meets


class Fifo(Scheduler):
    """The oldest task goes to the first node that asked and can run it. O(1) for one node that can run the oldest."""

    def assign(self, tasks: Sequence[TaskView], nodes: Sequence[NodeView]) -> list[tuple[TaskId, NodeId]]:
        return first_fit(tasks, nodes)


class Priority(Scheduler):
    """The most urgent task first, the oldest of equals, each to the first node that can run it."""

    def assign(self, tasks: Sequence[TaskView], nodes: Sequence[NodeView]) -> list[tuple[TaskId, NodeId]]:
        return first_fit(sorted(tasks, key=lambda task: task.priority, reverse=True), nodes)


class Capability(Scheduler):
    """The largest task goes to the fastest node that can run it; links and priorities are ignored.

    Minimises the sum of work / speed when every node can run every task (the rearrangement inequality). Nodes whose
    speed is not measured come last.
    """

    def assign(self, tasks: Sequence[TaskView], nodes: Sequence[NodeView]) -> list[tuple[TaskId, NodeId]]:
        largest_first = sorted(tasks, key=lambda task: task.work, reverse=True)
        fastest_first = sorted(nodes, key=lambda node: node.speed, reverse=True)
        return first_fit(largest_first, fastest_first)


def first_fit(tasks: Sequence[TaskView], nodes: Sequence[NodeView]) -> list[tuple[TaskId, NodeId]]:
    """Each task in turn to the first node with a free slot that meets its requirements.

    O(tasks + nodes * distinct requirements): a node passed over for some requirements, full or unfit, stays so.
    """
    free = [node.capacity for node in nodes]
    slots = sum(free)
    next_node: dict[tuple[str, int, float], int] = {}
    pairs: list[tuple[TaskId, NodeId]] = []
    for task in tasks:
        if slots == 0:
            break
        i = next_node.get(task.requirements, 0)
        while i < len(nodes) and not (free[i] and meets(task, nodes[i])):
            i += 1
        next_node[task.requirements] = i
        if i < len(nodes):
            free[i] -= 1
            slots -= 1
            pairs.append((task.id, nodes[i].id))
    return pairs
