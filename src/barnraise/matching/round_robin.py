"""A round-robin scheduler over nodes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from .base import NodeId, NodeView, Scheduler, TaskId, TaskView
from .room import Room


class RoundRobin(Scheduler):
    """Gives the oldest task to the next node in rotation that can run it.

    The rotation is by the nodes' names, and its last node is remembered from call to call. O(tasks * nodes) where few
    nodes can run the waiting tasks.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last: NodeId = ""

    def assign(self, tasks: Sequence[TaskView], nodes: Sequence[NodeView]) -> list[tuple[TaskId, NodeId]]:
        room = Room(sorted(nodes, key=lambda node: node.id))
        turn = bisect_right([node.id for node in room.nodes], self._last)
        for task in tasks:
            if not room.total:
                break
            for step in range(len(nodes)):
                i = (turn + step) % len(nodes)
                if room.fits(task, i):
                    room.give(task, i)
                    turn, self._last = i + 1, room.nodes[i].id
                    break
        return room.pairs
