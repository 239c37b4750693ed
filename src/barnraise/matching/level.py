"""Incremental deferred acceptance: a stable matching of tasks to the slots of nodes, each task in one slot.

A task that lost a place, or is new, proposes to the best node that accepts it; the task that it displaces proposes next
(Gale and Shapley 1962). A vacant slot goes to the best task that prefers it, which vacates its own, and so on: a
vacancy chain (Blum, Roth and Rothblum, "Vacancy Chains and Equilibration in Senior-Level Labor Markets", 1997). Tasks
are displaced by higher ranks only, and only gain along a chain, so both end.

Nodes rank by a standing that they agree on, then by locality. Equals do not displace each other: the matching is weakly
stable, and a vacancy goes to the one of the best that gains most. Where all ranks are strict, every stable matching
places the same tasks and fills as many slots on each node (the rural hospitals theorem).
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .labels import Labels
from .scores import Floats, Ints

SHUT = 1e300
"""Added to the costs of nodes that would refuse: above every cost, and finite."""

AT_ONCE = 8
"""Tasks that look at all nodes together: with more, too many would find a place taken by the one before."""

Bid = tuple[float, float, int, int]  # a node's view of a task: standing, locality, -arrival, row


class Pairs(Protocol):
    """A level's view of nodes and tasks, by their rows: costs (inf refuses), and localities."""

    def costs(self, j: int) -> Floats:
        """Return the costs of task j on each node; the caller may change them."""

    def maybe_cheaper(self, i: int, limits: Floats) -> Ints:
        """Return the tasks that may cost less on node i than their limit [tasks, or more], and few others."""

    def costs_at(self, i: int, tasks: Ints) -> Floats:
        """Return the costs of these tasks on node i, bit for bit those of `costs`; the caller may change them."""

    def cheapest(self, tasks: list[int], toll: Floats) -> tuple[list[int], list[float]]:
        """Return the node where each task costs the least with `toll` [nodes, or more], and the cost without it.

        -1 where only `costs` and `localities` can tell.
        """

    def localities(self, j: int) -> Floats | None:
        """Return the locality by which each node ranks task j beside its standing; None: it does not."""

    def localities_at(self, i: int, tasks: Ints) -> Floats | None:
        """Return the localities of these tasks for node i."""


class Level:
    """A stable matching over rows of nodes and tasks.

    An event is one or more of `enter`, `withdraw` and `set_slots`, then `settle`; `moved` has its result, until `close`
    ends the event. During an event, a task's previous node costs it `switching_cost` less, so noise moves nothing.
    """

    def __init__(self, pairs: Pairs, switching_cost: float = 0.0) -> None:
        self.pairs, self.switching_cost = pairs, switching_cost
        self.at: list[int] = []  # task -> node, -1 for none
        self.held: list[list[Bid]] = []  # by node, the least liked first
        self.slots: list[int] = []  # open slots; vacant ones open when all have proposed
        self._offered: list[int] = []
        self.moved: dict[int, int] = {}  # task -> its node when the event began
        self.touched: set[int] = set()  # nodes that hold other tasks than when the event began
        self._labels = Labels()
        self._standings: list[Any] = []
        self._label = np.zeros(0)  # label of each task's standing
        self._paid = np.zeros(0)  # each task's cost at its place: inf without one, -inf in unused rows
        self._arrivals = np.zeros(0, dtype=np.int64)
        self.num_tasks = self._entered = 0
        self._bar = np.zeros(0)  # the label to beat on each node: -inf with a free slot, inf with none at all
        self._bar_locality = np.zeros(0)
        self._toll = np.zeros(0)  # SHUT where a node would refuse the label last asked for, else 0
        self._toll_label = np.nan
        self._pending: list[int] = []
        self._vacant: list[int] = []

    # Events

    def enter(self, j: int, standing: Any) -> None:
        """The task in row j arrives."""
        if j >= len(self.at):
            self._grow_tasks(j + 1)
        label, changed = self._labels.take(standing)
        if changed:
            self._relabel(changed)
        self._label[j], self._standings[j] = label, standing
        self.num_tasks += 1
        self._entered += 1
        self._arrivals[j], self._paid[j] = self._entered, np.inf
        self._pending.append(j)

    def withdraw(self, j: int) -> None:
        """Remove the task in row j; its slot becomes vacant."""
        i = self.at[j]
        if i >= 0:
            self.slots[i] -= 1
            self._put(j, -1, np.inf)
            self._vacant.append(i)
        self._paid[j] = -np.inf
        self.num_tasks -= 1
        self._labels.give_back(self._standings[j])
        self.moved.pop(j, None)

    def set_slots(self, i: int, slots: int) -> None:
        """Set the number of slots that node i offers."""
        if i >= len(self.slots):
            self._grow_nodes(i + 1)
        self._offered[i] = slots
        if slots > self.slots[i]:
            self._vacant.append(i)
        if slots >= self.slots[i]:
            return
        self.slots[i] = slots
        while len(self.held[i]) > slots:
            j = self.held[i][0][3]
            self._put(j, -1, np.inf)
            self._pending.append(j)
        self._set_bar(i)

    def settle(self) -> None:
        """Let tasks propose until none is left, then fill vacancies until no task wants one.

        While tasks propose, a vacancy is shut, since others may want it more.
        """
        if self._pending:
            waiting = sorted(self._pending, key=lambda j: (-self._label[j], self._arrivals[j]))
            self._pending.clear()
            for _, equals in groupby(waiting, key=lambda j: self._label[j]):
                self.propose(list(equals))
        self._vacant = [i for i in self._vacant if not self._widen(i)]
        while self._vacant:
            self._fill(self._vacant.pop())

    def restart(self, slots: list[int]) -> list[list[int]]:
        """Remove all tasks from their places, and set the `slots` of each node [rows].

        Returns the waiting tasks, those of one rank together, the highest first: the caller places them (`place`,
        `propose`) in this order.
        """
        for j, i in enumerate(self.at):
            if i >= 0:
                self._put(j, -1, np.inf)
        if len(slots) > len(self.slots):
            self._grow_nodes(len(slots))
        for i, count in enumerate(slots):
            self.slots[i] = self._offered[i] = count
            self._set_bar(i)
        self._pending.clear()
        waiting = np.flatnonzero(self._paid == np.inf)
        waiting = waiting[np.lexsort((self._arrivals[waiting], -self._label[waiting]))]
        starts = np.flatnonzero(np.diff(self._label[waiting])) + 1
        return [group.tolist() for group in np.split(waiting, starts) if group.size]

    def propose(self, tasks: list[int]) -> None:
        """Let waiting tasks of one rank propose, one after the other."""
        for start in range(0, len(tasks), AT_ONCE):
            some = tasks[start : start + AT_ONCE]
            for j, i, cost in self._cheapest(some):
                # Nodes only become choosier while tasks propose: the cheapest one that would still accept is still the
                # cheapest.
                if i >= 0 and self._bar[i] < self._label[j]:
                    self._accept(j, i, cost)
                else:
                    self._propose(j)
                while self._pending:
                    self._propose(self._pending.pop())

    def place(self, j: int, i: int, cost: float, locality: float = 0.0) -> None:
        """Put the waiting task j on node i, which has a free slot: for callers that know it is stable."""
        self._put(j, i, cost, locality)

    def room(self, i: int) -> int:
        """Return the free slots of node i."""
        return self.slots[i] - len(self.held[i])

    def rooms(self) -> Ints:
        """Return the free slots of each node [rows]."""
        return np.array(self.slots, dtype=np.int64) - np.array([len(held) for held in self.held], dtype=np.int64)

    def close(self) -> None:
        """End the event, and make the current places of tasks the reference."""
        if self.switching_cost:
            for j, before in self.moved.items():
                if self.at[j] >= 0 and self.at[j] != before:
                    self._paid[j] -= self.switching_cost
        self.moved.clear()
        self.touched.clear()

    def blocking(self) -> Iterator[tuple[int, int]]:
        """Yield the (task, node) pairs that prefer each other: none once settled.

        Looks at every pair.
        """
        for j in np.flatnonzero(self._paid > -np.inf).tolist():
            costs = self.costs(j)
            better = (costs < self._paid[j]) & ~self._shut(j, self.pairs.localities(j), len(costs))
            yield from ((j, i) for i in np.flatnonzero(better).tolist())

    # Repairs

    def _propose(self, j: int) -> None:
        costs, localities = self.costs(j), self.pairs.localities(j)
        costs += self._tolls(j)[: len(costs)] if localities is None else self._shut(j, localities, len(costs)) * SHUT
        i = int(costs.argmin()) if len(costs) else -1
        if i < 0 or not costs[i] < SHUT:
            return
        self._accept(j, i, float(costs[i]), 0.0 if localities is None else float(localities[i]))

    def _accept(self, j: int, i: int, cost: float, locality: float = 0.0) -> None:
        """Put task j on node i, which, if full, displaces the task it likes least."""
        if len(self.held[i]) == self.slots[i]:
            displaced = self.held[i][0][3]
            self._put(displaced, -1, np.inf)
            self._pending.append(displaced)
        self._put(j, i, cost, locality)

    def _widen(self, i: int) -> bool:
        """Open all slots of node i if one was free during the event, and return whether it was.

        A slot beside a free one is not wanted by any task.
        """
        free = self.room(i) > 0
        if free:
            self.slots[i] = self._offered[i]
        return free

    def _fill(self, i: int) -> None:
        """Give the free slots of node i to the best tasks that prefer it; their former slots become vacant.

        Once is enough: tasks only gain while vacancies are filled, so no further task comes to prefer i.
        """
        self.slots[i] = self._offered[i]
        self._set_bar(i)
        room = self.room(i)
        if room <= 0:
            return
        at_home = self._away_from(i)
        waiting = self._maybe_wanting(i, at_home)
        while room and waiting.size:
            labels = self._label[waiting]
            highest = labels == np.maximum.reduce(labels)
            equals = waiting[highest]
            costs = self.pairs.costs_at(i, equals)
            if at_home:
                costs[np.isin(equals, at_home)] -= self.switching_cost
            paid = self._paid[equals]
            wanting = (costs < paid).nonzero()[0]
            if len(wanting) < len(equals):
                equals, costs, paid = equals[wanting], costs[wanting], paid[wanting]
            localities = self.pairs.localities_at(i, equals)
            for k in self._best(equals, paid - costs, localities, room):
                j, room = int(equals[k]), room - 1
                before = self.at[j]
                self._put(j, i, float(costs[k]), 0.0 if localities is None else float(localities[k]))
                # Beside a slot that was free all the time no task wants another, unless it is about to be filled.
                if before >= 0 and (self.room(before) == 1 or before in self._vacant):
                    self._vacant.append(before)
            if room:
                waiting = waiting[~highest]

    def _best(self, equals: Ints, gains: Floats, localities: Floats | None, count: int) -> list[int]:
        """Return the places of the tasks of one standing that a vacancy goes to: by locality, by gain, by arrival."""
        if len(equals) <= 1:
            return list(range(len(equals)))
        if count == 1 and localities is None:
            first = int(gains.argmax())
            if np.count_nonzero(gains == gains[first]) == 1:
                return [first]
        keys: list[Floats | Ints] = [gains, -self._arrivals[equals]]
        return _largest(keys if localities is None else [localities, *keys], count)

    def _away_from(self, i: int) -> list[int]:
        """Return the tasks that were on node i when the event began, and are not now."""
        if not self.switching_cost:
            return []
        return [j for j, before in self.moved.items() if before == i and self.at[j] != i]

    def _maybe_wanting(self, i: int, at_home: list[int]) -> Ints:
        if not at_home:
            return self.pairs.maybe_cheaper(i, self._paid)
        limits = self._paid.copy()
        limits[at_home] += self.switching_cost * (1 + 1e-9)
        return self.pairs.maybe_cheaper(i, limits)

    def _shut(self, j: int, localities: Floats | None, num_nodes: int) -> NDArray[np.bool_]:
        """Return which nodes would refuse task j."""
        label, bar = self._label[j], self._bar[:num_nodes]
        shut: NDArray[np.bool_] = bar >= label
        if localities is not None:
            shut &= (bar > label) | (self._bar_locality[:num_nodes] >= localities)
        return shut

    def _cheapest(self, tasks: list[int]) -> Iterable[tuple[int, int, float]]:
        """Yield (task, its cheapest node that accepts it, the cost) for tasks of one rank; -1 if unknown."""
        if len(tasks) == 1 or (self.switching_cost and any(self._home(j) >= 0 for j in tasks)):
            return [(j, -1, math.inf) for j in tasks]
        return zip(tasks, *self.pairs.cheapest(tasks, self._tolls(tasks[0])), strict=True)

    def _tolls(self, j: int) -> Floats:
        """Return SHUT for nodes that would refuse task j by its standing alone, else 0 [rows, and more].

        Kept, since tasks of one rank come one after the other.
        """
        if self._label[j] != self._toll_label:
            self._toll_label = float(self._label[j])
            np.multiply(self._bar >= self._toll_label, SHUT, out=self._toll)
        return self._toll

    def costs(self, j: int) -> Floats:
        """Return the costs of task j on each node, reduced at its node when the event began."""
        costs = self.pairs.costs(j)
        if self.switching_cost and (home := self._home(j)) >= 0:
            costs[home] -= self.switching_cost
        return costs

    def _home(self, j: int) -> int:
        return self.moved.get(j, self.at[j])

    # State

    def _put(self, j: int, i: int, cost: float, locality: float = 0.0) -> None:
        """Put task j on node i; all changes of the matching go through here."""
        before = self.at[j]
        self.moved.setdefault(j, before)
        if before >= 0:
            held = self.held[before]
            for k, bid in enumerate(held):
                if bid[3] == j:
                    del held[k]
                    break
            self._set_bar(before)
            self.touched.add(before)
        self.at[j] = i
        self._paid[j] = cost
        if i >= 0:
            insort(self.held[i], (float(self._label[j]), locality, -int(self._arrivals[j]), j))
            self._set_bar(i)
            self.touched.add(i)

    def _set_bar(self, i: int) -> None:
        held, slots = self.held[i], self.slots[i]
        bar = math.inf
        if len(held) < slots:
            bar = -math.inf
        elif slots:
            bar, self._bar_locality[i] = held[0][:2]
        self._bar[i] = bar
        self._toll[i] = SHUT if bar >= self._toll_label else 0.0

    def _relabel(self, changed: dict[float, float]) -> None:
        old = np.array(sorted(changed))
        new = np.array([changed[label] for label in old.tolist()])
        for labels in (self._label, self._bar):
            known = np.isin(labels, old)
            labels[known] = new[np.searchsorted(old, labels[known])]
        self._toll_label = np.nan
        self.held = [[(changed[bid[0]], *bid[1:]) for bid in held] for held in self.held]

    def _grow_tasks(self, count: int) -> None:
        more = max(count, 2 * len(self.at)) - len(self.at)
        self.at += [-1] * more
        self._standings += [None] * more
        self._label = np.concatenate([self._label, np.zeros(more)])
        self._paid = np.concatenate([self._paid, np.full(more, -np.inf)])
        self._arrivals = np.concatenate([self._arrivals, np.zeros(more, dtype=np.int64)])

    def _grow_nodes(self, count: int) -> None:
        more = max(count, 2 * len(self.slots)) - len(self.slots)
        self.slots += [0] * more
        self._offered += [0] * more
        self.held += [[] for _ in range(more)]
        self._bar = np.concatenate([self._bar, np.full(more, np.inf)])
        self._bar_locality = np.concatenate([self._bar_locality, np.zeros(more)])
        self._toll = np.concatenate([self._toll, np.full(more, SHUT)])


def _largest(keys: list[Floats | Ints], count: int) -> list[int]:
    """Return the places of the `count` largest by the first key, then the second ..., the best first."""
    if count > 1:
        order: list[int] = np.lexsort([-key for key in reversed(keys)])[:count].tolist()
        return order
    first = int(keys[0].argmax())
    places = (keys[0] == keys[0][first]).nonzero()[0]
    for key in keys[1:]:
        if len(places) > 1:
            values = key[places]
            places = places[values == values.max()]
    return [int(places[0])]
