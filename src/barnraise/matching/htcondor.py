"""A scheduler that matches as HTCondor's negotiator does."""

from __future__ import annotations

from collections.abc import Sequence

from .base import NodeId, NodeView, Scheduler, TaskId, TaskView
from .room import Room


class HTCondor(Scheduler):
    """One pass of a negotiator (Raman, Livny and Solomon, "Matchmaking", 1998).

    Tasks by priority, the oldest of equals, each to the node that it ranks highest among those where both sides'
    requirements are met. The rank is that of most pools, the machine's speed; of equals the one that asked first. No
    task is displaced. O(tasks * nodes) at worst.
    """

    def assign(self, tasks: Sequence[TaskView], nodes: Sequence[NodeView]) -> list[tuple[TaskId, NodeId]]:
        room = Room(sorted(nodes, key=lambda node: node.speed, reverse=True))
        for task in sorted(tasks, key=lambda task: task.priority, reverse=True):
            if not room.total:
                break
            match = next((i for i in range(len(nodes)) if room.fits(task, i)), None)
            if match is not None:
                room.give(task, match)
        return room.pairs
