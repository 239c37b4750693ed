"""A random scheduler, as a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random as Chance

from .base import NodeId, NodeView, Scheduler, TaskId, TaskView
from .room import Room


class Random(Scheduler):
    """Gives each task, in a random order, to a random node of those that it fits.

    The same calls with the same `seed` give the same answers. O(tasks * nodes).
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self._chance = Chance(seed)

    def assign(self, tasks: Sequence[TaskView], nodes: Sequence[NodeView]) -> list[tuple[TaskId, NodeId]]:
        room = Room(nodes)
        for task in self._chance.sample(tasks, len(tasks)):
            if not room.total:
                break
            able = [i for i in range(len(nodes)) if room.fits(task, i)]
            if able:
                room.give(task, self._chance.choice(able))
        return room.pairs
