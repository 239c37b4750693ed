"""Nodes and tasks as columns of numbers, so that costs take a few passes over an array.

    c_ij = p_ij + d_ij = work_j / speed_i + latency_i + down_ij / down_i + up_j / up_i

`down_ij` leaves out the shards that the node holds. A node may have a price beside (`NodeTable.charge`). Both
directions add up in the same order, so they agree bit for bit. Rows of departed nodes and tasks are reused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from .base import NodeId, NodeView, TaskId, TaskView
from .preferences import Preferences
from .scores import Floats, Ints

Bools = NDArray[np.bool_]

NOBODY: tuple[Ints, Floats] = np.zeros(0, dtype=np.int64), np.zeros(0)


class _Rows:
    """Named columns of equal length which grow by doubling; freed rows are reused first."""

    def __init__(self, columns: Mapping[str, float]) -> None:
        self._place = {name: place for place, name in enumerate(columns)}
        self._empty = np.array(list(columns.values()), dtype=np.float64)  # values of an unused row
        self._values = np.empty((len(columns), 0))
        self._product = np.empty(0)
        self._free: list[int] = []
        self.length = 0

    def column(self, name: str) -> Floats:
        return self._values[self._place[name], : self.length]

    def first(self, count: int) -> Floats:
        """Return the first `count` columns [count, rows]."""
        return self._values[:count, : self.length]

    def weighted(self, down: Floats, down_by: float | Floats, others: Iterable[tuple[str, float]]) -> Floats:
        """Return `down` * `down_by` + ... + column * weight ..., in this order, in an array of its own."""
        total: Floats = np.multiply(down, down_by)
        product = self._product[: self.length]  # kept: allocating it takes as long as filling it
        for name, weight in others:
            total += np.multiply(self.column(name), weight, out=product)
        return total

    def take(self) -> int:
        if self._free:
            return self._free.pop()
        if self.length == self._values.shape[1]:
            more = max(16, self.length) + 8  # so that columns are no power of two apart, and share no cache lines
            self._values = np.concatenate([self._values, np.repeat(self._empty[:, None], more, axis=1)], axis=1)
            self._product = np.empty(self._values.shape[1])
        self.length += 1
        return self.length - 1

    def put(self, row: int, values: Sequence[float]) -> None:
        """Set the first columns of a row to `values`."""
        self._values[: len(values), row] = values

    def give_back(self, row: int) -> None:
        self._values[:, row] = self._empty
        self._free.append(row)


class NodeTable:
    """The nodes; `index` has the row of each.

    With `by_work` a price is for each unit of work, else for a task.
    """

    def __init__(self, preferences: Preferences, by_work: bool = False) -> None:
        self.preferences, self.by_work = preferences, by_work
        self.index: dict[NodeId, int] = {}
        self.views: list[NodeView | None] = []
        times = {"down": 0.0, "up": 0.0, "work": 0.0, "fixed": np.inf}
        charged = {"base": 0.0, "price": 0.0}  # the sum that has the price, and the price
        self._rows = _Rows(times | charged | {"memory": np.inf, "trust": np.inf, "accelerator": np.inf})
        self._charged = "work" if by_work else "fixed"
        self._holders: dict[int, set[int]] = {}
        self._holder_rows: dict[int, Ints] = {}
        self._refusing: dict[str, Bools] = {}  # kind -> nodes that do not take it [rows]
        self._picky = 0  # nodes that take some kinds only
        self._least_memory = self._least_trust = self._least_accelerator = np.inf

    def __len__(self) -> int:
        """Return the number of rows, used or not."""
        return self._rows.length

    def add(self, node: NodeView) -> int:
        row = self._rows.take()
        if row == len(self.views):
            self.views.append(None)
        self.index[node.id] = row
        self._write(row, node)
        return row

    def remove(self, node_id: NodeId) -> int:
        """Remove a node and return its row, which has infinite cost from now on."""
        row = self.index.pop(node_id)
        self._clear(row)
        self._rows.give_back(row)
        return row

    def set_room(self, row: int, capacity: int, work_capacity: float) -> None:
        """Change a node's room, and nothing else."""
        node = self.views[row]
        assert node is not None
        self.views[row] = replace(node, capacity=capacity, work_capacity=work_capacity)

    def charge(self, row: int, price: float) -> None:
        """Set a node's price: seconds a task, or a unit of work."""
        base = float(self._rows.column("base")[row])
        self._rows.column(self._charged)[row], self._rows.column("price")[row] = base + price, price

    def charge_all(self, prices: Floats) -> None:
        """Set the price of every row; it must be finite in unused ones."""
        used = np.array([view is not None for view in self.views], dtype=np.bool_)
        self._rows.column("price")[:] = prices
        self._rows.column(self._charged)[used] = (self._rows.column("base") + prices)[used]

    def all_times(self) -> Floats:
        """Return [4, rows]: seconds on a node for a byte down, a byte up, a unit of work, and in any case.

        The last has the node's price.
        """
        return self._rows.first(4)

    def price(self, row: int) -> float:
        return float(self._rows.column("price")[row])

    def _write(self, row: int, node: NodeView) -> None:
        self.views[row] = node
        work, down, up, fixed = self.preferences.coefficients(node)
        base = work if self.by_work else fixed
        self._rows.put(row, (down, up, work, fixed, base, 0.0, node.memory_bytes, node.trust, node.accelerator_bytes))
        self._least_memory = min(self._least_memory, node.memory_bytes)
        self._least_trust = min(self._least_trust, node.trust)
        self._least_accelerator = min(self._least_accelerator, node.accelerator_bytes)
        for shard in node.shards:
            self._holders.setdefault(shard, set()).add(row)
            self._holder_rows.pop(shard, None)
        self._picky += bool(node.kinds)
        self._refuse(row, node.kinds)

    def _clear(self, row: int) -> None:
        node = self.views[row]
        assert node is not None
        for shard in node.shards:
            self._holders[shard].discard(row)
            self._holder_rows.pop(shard, None)
            if not self._holders[shard]:
                del self._holders[shard]
        self._picky -= bool(node.kinds)
        self._refuse(row, frozenset())
        self.views[row] = None

    def _refusing_all(self, kind: str) -> Bools:
        """Return which nodes do not take a kind [rows, and more]."""
        refusing = self._refusing.get(kind)
        if refusing is None or len(refusing) < len(self):
            refusing = self._refusing[kind] = np.zeros(2 * len(self) + 16, dtype=np.bool_)
            refusing[: len(self)] = [bool(node and node.kinds and kind not in node.kinds) for node in self.views]
        return refusing

    def _refuse(self, row: int, kinds: AbstractSet[str]) -> None:
        """Restrict the node in a row to these kinds; any, if there are none."""
        for kind, refusing in self._refusing.items():
            if row < len(refusing):
                refusing[row] = bool(kinds) and kind not in kinds

    def costs(self, task: TaskView) -> Floats:
        """Return the costs of `task` on each node [rows], inf where a requirement is not met."""
        column = self._rows.column
        down_bytes: float | Floats = task.down_bytes
        if task.shards:
            down_bytes = (task.down_bytes + sum(task.shards.values())) - self.local_bytes(task)
        costs = self._rows.weighted(column("down"), down_bytes, (("up", task.up_bytes), ("work", task.work)))
        costs += column("fixed")
        unfit = self._unfit(task)
        if unfit is not None:
            costs[unfit] = np.inf
        return costs

    def suit(self, task: TaskView) -> bool:
        """Return whether there are nodes, and the task's costs depend on their times alone."""
        fit = task.memory_bytes <= self._least_memory and task.accelerator_bytes <= self._least_accelerator
        fit = fit and task.min_trust <= self._least_trust and not self._picky and not task.only
        return fit and not task.shards and len(self) > 0

    def local_bytes(self, task: TaskView) -> Floats:
        """Return how much of the task's shards each node holds [rows]."""
        local = np.zeros(len(self))
        for shard, num_bytes in task.shards.items():
            if shard in self._holders:
                local[self._holding(shard)] += num_bytes
        return local

    def _holding(self, shard: int) -> Ints:
        rows = self._holder_rows.get(shard)
        if rows is None:
            rows = self._holder_rows[shard] = np.array(sorted(self._holders[shard]), dtype=np.int64)
        return rows

    def _unfit(self, task: TaskView) -> Bools | None:
        """Return where a requirement is not met [rows]; None if nowhere."""
        unfit: Bools | None = None
        if task.memory_bytes > self._least_memory:
            unfit = self._rows.column("memory") < task.memory_bytes
        if task.min_trust > self._least_trust:
            distrusted = self._rows.column("trust") < task.min_trust
            unfit = distrusted if unfit is None else unfit | distrusted
        if task.accelerator_bytes > self._least_accelerator:
            small = self._rows.column("accelerator") < task.accelerator_bytes
            unfit = small if unfit is None else unfit | small
        if task.only:
            barred = np.ones(len(self), dtype=np.bool_)
            barred[[self.index[node] for node in task.only if node in self.index]] = False
            unfit = barred if unfit is None else unfit | barred
        if self._picky:
            refusing = self._refusing_all(task.kind)[: len(self)]
            unfit = refusing if unfit is None else unfit | refusing
        return unfit


class TaskTable:
    """A table of tasks; `index` has the row of each."""

    def __init__(self) -> None:
        self.index: dict[TaskId, int] = {}
        self.views: list[TaskView | None] = []
        needs = {"down": 0.0, "up": 0.0, "work": 0.0, "once": 1.0}  # as the times of a node
        self._rows = _Rows(needs | {"shards": 0.0, "memory": 0.0, "trust": 0.0, "kind": 0.0, "accelerator": 0.0})
        self._kinds: dict[str, int] = {}  # kinds as numbers
        self._needers: dict[int, tuple[Ints, Floats]] = {}  # shard -> rows, bytes
        self._most_memory = self._most_trust = self._most_accelerator = 0.0
        self._only: dict[int, AbstractSet[NodeId]] = {}  # rows of tasks for some nodes only

    def __len__(self) -> int:
        """Return the number of rows, used or not."""
        return self._rows.length

    def add(self, task: TaskView) -> int:
        row = self._rows.take()
        if row == len(self.views):
            self.views.append(None)
        self.index[task.id] = row
        self.views[row] = task
        shards = sum(task.shards.values()) if task.shards else 0
        kind = self._kinds.setdefault(task.kind, len(self._kinds))
        needs = task.down_bytes + shards, task.up_bytes, task.work, 1.0
        self._rows.put(row, (*needs, shards, task.memory_bytes, task.min_trust, kind, task.accelerator_bytes))
        self._most_memory = max(self._most_memory, task.memory_bytes)
        self._most_trust = max(self._most_trust, task.min_trust)
        self._most_accelerator = max(self._most_accelerator, task.accelerator_bytes)
        if task.only:
            self._only[row] = task.only
        for shard, num_bytes in task.shards.items():
            rows, sizes = self._needers.get(shard, NOBODY)
            self._needers[shard] = np.append(rows, row), np.append(sizes, num_bytes)
        return row

    def remove(self, task_id: TaskId) -> int:
        row = self.index.pop(task_id)
        task = self.views[row]
        assert task is not None
        for shard in task.shards:
            rows, sizes = self._needers.pop(shard)
            if len(rows) > 1:
                self._needers[shard] = rows[rows != row], sizes[rows != row]
        self._only.pop(row, None)
        self.views[row] = None
        self._rows.give_back(row)
        return row

    def costs(self, nodes: NodeTable, i: int, rows: Ints | slice) -> Floats:
        """Return the costs of the tasks in `rows` on the node in row `i`, inf where a requirement is not met."""
        times, needs, node = nodes.all_times()[:, i], self._rows.first(3)[:, rows], nodes.views[i]
        assert node is not None
        if node.shards and self._needers:
            needs = needs.copy()
            needs[0] -= self.local_bytes(node)[rows]
        needs = needs * times[:3, None]
        costs: Floats = needs[0] + needs[1]
        costs += needs[2]
        costs += times[3]
        column = self._rows.column
        if self._most_memory > node.memory_bytes:
            costs[column("memory")[rows] > node.memory_bytes] = np.inf
        if self._most_trust > node.trust:
            costs[column("trust")[rows] > node.trust] = np.inf
        if self._most_accelerator > node.accelerator_bytes:
            costs[column("accelerator")[rows] > node.accelerator_bytes] = np.inf
        if self._only:
            barred = np.zeros(len(self), dtype=np.bool_)
            barred[[row for row, only in self._only.items() if node.id not in only]] = True
            costs[barred[rows]] = np.inf
        if node.kinds and not self._kinds.keys() <= node.kinds:
            refused = [number for kind, number in self._kinds.items() if kind not in node.kinds]
            costs[np.isin(column("kind")[rows], refused)] = np.inf
        return costs

    def needs(self, rows: list[int]) -> Floats:
        """Return the amounts of the tasks in `rows` of a node's times [4, rows], if it has none of their shards."""
        return self._rows.first(4)[:, rows]

    def maybe_cheaper(self, nodes: NodeTable, i: int, limits: Floats) -> Ints:
        """Return the rows of tasks that may cost less on a node than their limit [rows, or more], and few others.

        The node is in row `i` of `nodes`. An unused row must have the limit -inf.
        """
        node = nodes.views[i]
        if node is None:
            return np.empty(0, dtype=np.int64)
        # A product of matrices is the fastest, but its rounding varies: so it is kept a little below the true costs.
        times = nodes.all_times()[:, i] * (1 - 1e-9)
        costs = times @ self._rows.first(4)
        if node.shards and self._needers:
            costs -= self.local_bytes(node) * times[0]
        rows: Ints = (costs < limits[: len(costs)]).nonzero()[0]
        return rows

    def localities(self, nodes: NodeTable, i: int, rows: Ints) -> Floats | None:
        """Return the share of the shard bytes of the tasks in `rows` that a node has; None: no task needs any."""
        node = nodes.views[i]
        if not self._needers or node is None:
            return None
        return self.local_bytes(node)[rows] / np.maximum(self._rows.column("shards")[rows], 1.0)

    def local_bytes(self, node: NodeView) -> Floats:
        """Return how much of each task's shards [rows] the node holds."""
        local = np.zeros(len(self))
        for shard in node.shards & self._needers.keys():
            rows, sizes = self._needers[shard]
            local[rows] += sizes
        return local


class ViewPairs:
    """Costs and localities between the tasks of a level and all nodes."""

    def __init__(self, nodes: NodeTable, tasks: TaskTable) -> None:
        self.nodes, self.tasks = nodes, tasks

    def costs(self, j: int) -> Floats:
        return self.nodes.costs(self._task(j))

    def costs_at(self, i: int, rows: Ints) -> Floats:
        return self.tasks.costs(self.nodes, i, rows)

    def cheapest(self, tasks: list[int], toll: Floats) -> tuple[list[int], list[float]]:
        suit = [self.nodes.suit(self._task(j)) for j in tasks]
        if not any(suit):
            return [-1] * len(tasks), [np.inf] * len(tasks)
        needs, times = self.tasks.needs(tasks), self.nodes.all_times()
        totals = needs.T @ times  # its rounding varies: it decides the cheapest only where no other is close
        totals += toll[: len(self.nodes)]
        places, every = totals.argmin(axis=1), np.arange(len(tasks))
        least = totals[every, places]
        totals[every, places] = np.inf
        sure = totals.min(axis=1) > least * (1 + 1e-9)
        sure &= suit
        needs *= times[:, places]
        costs = needs[0] + needs[1]
        costs += needs[2]
        costs += needs[3]
        return np.where(sure, places, -1).tolist(), costs.tolist()

    def maybe_cheaper(self, i: int, limits: Floats) -> Ints:
        return self.tasks.maybe_cheaper(self.nodes, i, limits)

    def localities(self, j: int) -> Floats | None:
        """Return the share of the task's shard bytes that each node has."""
        task = self._task(j)
        total = sum(task.shards.values()) if task.shards else 0
        return self.nodes.local_bytes(task) / total if total else None

    def localities_at(self, i: int, rows: Ints) -> Floats | None:
        """Return the localities of the tasks in `rows` at one node."""
        return self.tasks.localities(self.nodes, i, rows)

    def _task(self, j: int) -> TaskView:
        task = self.tasks.views[j]
        assert task is not None
        return task


def cost_matrix(preferences: Preferences, tasks: Sequence[TaskView], nodes: Sequence[NodeView]) -> Floats:
    """Return c_ij [tasks, nodes] in seconds, inf where a requirement is not met."""
    table = NodeTable(preferences)
    for node in nodes:
        table.add(node)
    rows = [table.costs(task) for task in tasks]
    return np.stack(rows) if rows else np.empty((0, len(nodes)))
