"""A greedy scheduler: the cheapest pair first."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from .base import NodeId, NodeView, Scheduler, TaskId, TaskView
from .preferences import Preferences
from .room import Room
from .tables import NodeTable


class Greedy(Scheduler):
    """Assigns the task and node of least c_ij, then the next such pair.

    Small tasks take the best nodes, and the rest is expensive for the large ones. O(tasks * nodes) for each time a node
    fills up.
    """

    def __init__(self, default_speed: float = 1000.0, default_bandwidth: float = 1.25e6) -> None:
        super().__init__()
        self.preferences = Preferences(default_speed, default_bandwidth)

    def assign(self, tasks: Sequence[TaskView], nodes: Sequence[NodeView]) -> list[tuple[TaskId, NodeId]]:
        room, table = Room(nodes), NodeTable(self.preferences)
        for node in nodes:
            table.add(node)
        full = np.array([slots == 0 for slots in room.slots], dtype=np.bool_)

        def best(j: int) -> tuple[float, int, int] | None:
            costs = table.costs(tasks[j])
            costs[full] = np.inf
            if room.by_work:
                costs[np.array(room.work) < tasks[j].work] = np.inf
            i = int(costs.argmin()) if len(costs) else -1
            return (float(costs[i]), j, i) if i >= 0 and costs[i] < np.inf else None

        heap = [found for j in range(len(tasks)) if (found := best(j))]
        heapq.heapify(heap)
        while heap and room.total:
            _, j, i = heapq.heappop(heap)
            if room.fits(tasks[j], i):
                room.give(tasks[j], i)
                full[i] = not room.slots[i]
            elif found := best(j):
                heapq.heappush(heap, found)
        return room.pairs
