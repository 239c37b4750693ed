"""A genetic search for an assignment, as in DT-FM."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .base import NodeId, NodeView, TaskId, TaskView
from .planned import Planned
from .preferences import Preferences
from .room import Room
from .scores import Floats, Ints
from .tables import cost_matrix

MOST_SEATS = 4
"""Slots of nodes that the search considers for each task, at most."""


class DTFM(Planned):
    """A genetic search for a cheap assignment, each child improved by exchanges before it joins the population.

    Yuan et al., "Decentralized Training of Foundation Models in Heterogeneous Environments", 2022, whose total is
    communication alone; here it is sum c_ij. An individual is a permutation: which task, or none, has which seat. Two
    parents differ by cycles, which cost independently of each other, so a child takes each cycle from the parent where
    it is cheaper; then random pairs exchange seats where both gain together. It replaces the worst, `generations`
    times. The same calls with the same `seed` give the same answers. O(tasks * nodes) memory.
    """

    def __init__(
        self,
        generations: int = 100,
        population: int = 16,
        seed: int = 0,
        default_speed: float = 1000.0,
        default_bandwidth: float = 1.25e6,
    ) -> None:
        super().__init__()
        self.generations, self.population = generations, population
        self.preferences = Preferences(default_speed, default_bandwidth)
        self._chance = np.random.Generator(np.random.PCG64(seed))

    def assign(self, tasks: Sequence[TaskView], nodes: Sequence[NodeView]) -> list[tuple[TaskId, NodeId]]:
        room = Room(nodes)
        if not tasks or not room.total:
            return []
        costs = cost_matrix(self.preferences, tasks, nodes)
        seats = self._seats(tasks, room)
        best = self._search(costs[:, seats])[: len(tasks)]
        order = range(len(tasks))
        for j in order:
            if best[j] < len(seats) and room.fits(tasks[j], int(seats[best[j]])):
                room.give(tasks[j], int(seats[best[j]]))
        given = {task_id for task_id, _ in room.pairs}
        for j in order:
            if tasks[j].id not in given:
                match = next((i for i in np.argsort(costs[j]).tolist() if room.fits(tasks[j], i)), None)
                if match is not None:
                    room.give(tasks[j], match)
        return room.pairs

    def _seats(self, tasks: Sequence[TaskView], room: Room) -> Ints:
        """Return each node's number once for each slot, or each task of the mean size that it holds.

        Altogether some times as often as there are tasks.
        """
        mean = sum(task.work for task in tasks) / len(tasks) or 1.0
        most = max(1, MOST_SEATS * len(tasks) // len(room.nodes))
        counts = [min(slots, most, 1 + int(work / mean)) for slots, work in zip(room.slots, room.work, strict=True)]
        return np.repeat(np.arange(len(counts)), counts)

    def _search(self, costs: Floats) -> Ints:
        """Return the best permutation found: row -> column, both filled up with rows and columns that cost nothing."""
        size = max(costs.shape)
        finite = costs[np.isfinite(costs)]
        square = np.zeros((size, size))
        refused = 2 * size * (float(finite.max()) if finite.size else 1.0) + 1.0
        square[: costs.shape[0], : costs.shape[1]] = np.where(np.isfinite(costs), costs, refused)
        rows = np.arange(size)
        people = [self._improved(square, self._chance.permutation(size)) for _ in range(self.population)]
        totals = [float(square[rows, person].sum()) for person in people]
        for _ in range(self.generations):
            mother, father = self._chance.choice(self.population, 2, replace=self.population < 2)
            child = self._improved(square, _recombined(square, people[mother], people[father]))
            total, worst = float(square[rows, child].sum()), int(np.argmax(totals))
            if total < totals[worst]:
                people[worst], totals[worst] = child, total
        return people[int(np.argmin(totals))]

    def _improved(self, square: Floats, person: Ints) -> Ints:
        """Return the permutation after rounds of random exchanges, each of which pairs all rows."""
        person, half = person.copy(), len(person) // 2
        for _ in range(16):
            shuffled = self._chance.permutation(len(person))
            left, right = shuffled[:half], shuffled[half : 2 * half]
            now = square[left, person[left]] + square[right, person[right]]
            gains = square[left, person[right]] + square[right, person[left]] < now
            left, right = left[gains], right[gains]
            person[left], person[right] = person[right], person[left]
        return person


def _recombined(square: Floats, mother: Ints, father: Ints) -> Ints:
    """Take each cycle in which the two differ from the parent where it costs less (cycle crossover)."""
    child, holder = mother.copy(), np.empty_like(mother)
    holder[mother] = np.arange(len(mother))
    following = holder[father].tolist()  # holder, in the mother, of the seat that the father gives this one
    seen = (mother == father).tolist()
    for start in range(len(child)):
        cycle = []
        row = start
        while not seen[row]:
            seen[row] = True
            cycle.append(row)
            row = following[row]
        if cycle and square[cycle, father[cycle]].sum() < square[cycle, mother[cycle]].sum():
            child[cycle] = father[cycle]
    return child
