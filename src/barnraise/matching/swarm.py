"""Interleaved weighted round robin, as in SWARM."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from .base import NodeId, NodeView, Scheduler, TaskId, TaskView
from .room import Room


class Swarm(Scheduler):
    """Gives each task, the oldest first, to the node with the least accumulated expected runtime.

    The runtime grows by size / throughput (Ryabinin et al., "SWARM Parallelism", 2023, algorithm 1). A node's
    throughput is the exponential moving average of its measured speeds, `smoothing` the weight of the newest.
    Remembered from call to call. A node that was away, or is new, starts at the last chosen node's runtime, so it is
    not flooded with missed tasks. O(log nodes) a task where all nodes can run it.
    """

    def __init__(self, smoothing: float = 0.1, default_speed: float = 1000.0) -> None:
        super().__init__()
        self.smoothing, self.default_speed = smoothing, default_speed
        self._runtime: dict[NodeId, float] = {}
        self._speed: dict[NodeId, float] = {}
        self._now = 0.0  # runtime of the node that was chosen last: lower values are out of date

    def assign(self, tasks: Sequence[TaskView], nodes: Sequence[NodeView]) -> list[tuple[TaskId, NodeId]]:
        room = Room(nodes)
        for node in nodes:
            self._observe(node)
        heap = [(max(self._now, self._runtime.get(node.id, 0.0)), i) for i, node in enumerate(nodes) if node.capacity]
        heapq.heapify(heap)
        for task in tasks:
            if not heap:
                break
            passed: list[tuple[float, int]] = []
            while heap:
                runtime, i = heapq.heappop(heap)
                if room.fits(task, i):
                    room.give(task, i)
                    self._now = max(self._now, runtime)
                    runtime += task.work / self._speed[nodes[i].id]
                    self._runtime[nodes[i].id] = runtime
                    if room.slots[i]:
                        passed.append((runtime, i))
                    break
                passed.append((runtime, i))
            for entry in passed:
                heapq.heappush(heap, entry)
        return room.pairs

    def _observe(self, node: NodeView) -> None:
        measured = max(node.speed, 1e-6) if node.speed else self._speed.get(node.id, self.default_speed)
        before = self._speed.get(node.id, measured)
        self._speed[node.id] = before + self.smoothing * (measured - before)
        if len(self._speed) > 100_000:  # names that never came back
            self._speed = {name: self._speed[name] for name in list(self._speed)[-50_000:]}
            self._runtime = {name: self._runtime[name] for name in self._speed if name in self._runtime}
