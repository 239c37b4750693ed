"""The room on nodes while a scheduler assigns tasks one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from .base import LARGEST_AMOUNT, NodeId, NodeView, TaskId, TaskView, meets


class Room:
    """Free slots and work of `nodes`, and the pairs given so far."""

    def __init__(self, nodes: Sequence[NodeView]) -> None:
        self.nodes = nodes
        self.slots = [node.capacity for node in nodes]
        self.work = [node.work_capacity for node in nodes]
        self.total = sum(self.slots)
        self.by_work = any(limit < LARGEST_AMOUNT for limit in self.work)
        self.pairs: list[tuple[TaskId, NodeId]] = []

    def fits(self, task: TaskView, i: int) -> bool:
        """Return whether node i has room for the task and meets its requirements."""
        return self.slots[i] > 0 and task.work <= self.work[i] and meets(task, self.nodes[i])

    def give(self, task: TaskView, i: int) -> None:
        """Assign the task to node i, which it fits."""
        self.slots[i] -= 1
        self.total -= 1
        if self.work[i] < LARGEST_AMOUNT:
            self.work[i] -= task.work
        self.pairs.append((task.id, self.nodes[i].id))


def first_fit(tasks: Sequence[TaskView], nodes: Sequence[NodeView]) -> list[tuple[TaskId, NodeId]]:
    """Assign each task in order to the first node that it fits.

    O(tasks + nodes * distinct requirements): a node passed over for some requirements, full or unfit, stays so.
    """
    room = Room(nodes)
    next_node: dict[tuple[object, ...], int] = {}
    for task in tasks:
        if not room.total:
            break
        needs = (*task.requirements, task.work if room.by_work else 0.0)
        i = next_node.get(needs, 0)
        while i < len(nodes) and not room.fits(task, i):
            i += 1
        next_node[needs] = i
        if i < len(nodes):
            room.give(task, i)
    return room.pairs
