"""The prices of a market's nodes: computed from all tasks and nodes, or a sample, and kept for nodes that join."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from .base import TaskView
from .prices import congestion_prices, fill_prices
from .scores import Floats, Ints
from .tables import NodeTable, TaskTable

SAMPLE = 400
"""Tasks, and nodes, in the sample."""

AT_ONCE = 32
"""Nodes priced at once: their costs stay in the cache."""


class PriceBook:
    """The payments of some tasks (time and price) at their best node, from which any node's price follows.

    It is the price at which these tasks would just fill the node. So a node that leaves and returns has the price it
    had.
    """

    def __init__(self, nodes: NodeTable, tasks: Iterable[TaskView]) -> None:
        self._by_work = nodes.by_work
        self._sample = TaskTable()
        self._sizes = self._paid = np.zeros(0)
        self._scale, self._entropy = 1.0, 0.0  # room of the sample for each unit of a node's
        nodes.charge_all(np.zeros(len(nodes)))
        rows, offered = self._selling(nodes)
        wanted = self._within(nodes, tasks, float(offered.sum()))
        kinds = {(task.work, task.down_bytes, task.up_bytes, frozenset(task.shards.items())) for task in wanted}
        if len(rows) < 2 or len(kinds) < 2:
            return  # no task has a choice
        self._make(nodes, rows, offered, wanted)

    def price(self, nodes: NodeTable, i: int) -> float:
        """Return the price of the node in row `i`, which has none yet: seconds a task, or a unit of work."""
        offered = self._offered(nodes, i)
        if not self._entropy or offered <= 0:
            return 0.0
        return float(self._prices(self._sample.costs(nodes, i, slice(None))[None], np.array([offered]))[0])

    def charge(self, nodes: NodeTable) -> None:
        """Set the price of every node in the table."""
        prices = np.zeros(len(nodes))
        if self._entropy:
            rows, offered = self._selling(nodes)
            costs = np.empty((len(nodes), len(self._sizes)))
            for k, task in enumerate(self._sample.views):
                assert task is not None
                costs[:, k] = nodes.costs(task)
            for some in range(0, len(rows), AT_ONCE):
                part = slice(some, some + AT_ONCE)
                prices[rows[part]] = self._prices(costs[rows[part]], offered[part])
        nodes.charge_all(prices)

    def _prices(self, costs: Floats, offered: Floats) -> Floats:
        return fill_prices(costs / self._sizes, self._paid, offered * self._scale, self._entropy)

    def _selling(self, nodes: NodeTable) -> tuple[Ints, Floats]:
        """Return the rows of nodes with capacity to offer, and how much."""
        offered = {i: self._offered(nodes, i) for i in nodes.index.values()}
        rows = np.array([i for i, room in offered.items() if room > 0], dtype=np.int64)
        return rows, np.array([offered[i] for i in rows.tolist()])

    def _make(self, nodes: NodeTable, rows: Ints, offered: Floats, wanted: list[TaskView]) -> None:
        sample = _spread(np.array([task.work for task in wanted]), SAMPLE)
        typical = nodes.costs(wanted[int(sample[len(sample) // 2])])[rows]
        some = _spread(np.where(np.isfinite(typical), typical, np.finfo(np.float64).max), SAMPLE)
        chosen = [wanted[k] for k in sample]
        sizes = np.array([task.work if self._by_work else 1.0 for task in chosen])
        costs = np.stack([nodes.costs(task)[rows[some]] for task in chosen]) / sizes[:, None]
        able = np.isfinite(costs).any(axis=1)
        if not able.any():
            return
        for task in (task for task, fits in zip(chosen, able, strict=True) if fits):
            self._sample.add(task)
        self._sizes, costs = sizes[able], costs[able]
        self._scale = len(rows) / len(some)
        room, mass = offered[some] * self._scale, self._sizes * (len(wanted) / len(sample))
        mass *= min(1.0, 0.999 * room.sum() / mass.sum())
        _, self._paid, self._entropy = congestion_prices(costs, mass, room)

    def _within(self, nodes: NodeTable, tasks: Iterable[TaskView], room: float) -> list[TaskView]:
        """Return the tasks that nodes rank highest, as far as there is room for them."""
        if self._by_work:
            tasks = (task for task in tasks if task.work > 0)
        ranked = sorted(tasks, key=nodes.preferences.standing, reverse=True)
        sizes = np.array([task.work if self._by_work else 1.0 for task in ranked])
        return ranked[: int(np.searchsorted(np.cumsum(sizes), room, side="right"))]

    def _offered(self, nodes: NodeTable, i: int) -> float:
        node = nodes.views[i]
        assert node is not None
        return node.work_capacity if self._by_work else float(node.capacity)


def _spread(values: Floats, most: int) -> Ints:
    """Return the places of at most `most` values, spread evenly over their order."""
    order = np.argsort(values, kind="stable")
    if len(order) <= most:
        return np.sort(order)
    return np.sort(order[((np.arange(most) + 0.5) * len(order) / most).astype(np.int64)])
