"""Who prefers whom: scores from measured speeds, bandwidths and requirements.

A task prefers the node that has it back soonest: score -c_ij, with c_ij = p_ij + d_ij, compute plus transfer. A node
ranks the larger task first, then priority, then trust (a task that few are trusted with), then locality (the share of
its data already there). The order matters: on lognormal speeds, nodes that rank by priority and locality alone make a
stable matching about as dear as a random one; ranked by work, it comes within a few percent of the optimum.

Not covered: congestion prices, and capacities in units of work (every task takes one slot).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from barnraise.core.errors import OptionError

from .base import NodeView, TaskView, meets

Floats = NDArray[np.float64]
NodeScore = tuple[float, float, float, float]
Number = TypeVar("Number", float, Floats)


@dataclass(frozen=True, slots=True)
class Preferences:
    """How scores are made. Rates of 0 (not measured) count as the defaults; OptionError unless these are above 0."""

    default_speed: float = 1000.0  # tokens a second
    default_bandwidth: float = 1.25e6  # bytes a second: 10 Mbit/s
    priority_first: bool = False  # nodes rank priority before work

    def __post_init__(self) -> None:
        for name in ("default_speed", "default_bandwidth"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise OptionError(f"preferences: option '{name}' is {value}, but must be finite and above 0")

    def cost(self, task: TaskView, node: NodeView) -> float:
        """c_ij in seconds: fetch, compute, hand back; requirements aside."""
        down_bytes = task.down_bytes
        if task.shards:
            down_bytes += sum(num_bytes for shard, num_bytes in task.shards.items() if shard not in node.shards)
        return _cost(
            task,
            down_bytes,
            node.speed or self.default_speed,
            node.down_bandwidth or self.default_bandwidth,
            node.up_bandwidth or self.default_bandwidth,
            node.latency,
        )

    def task_score(self, task: TaskView, node: NodeView) -> float | None:
        """How much the task likes the node, higher is better; None if it does not meet the requirements."""
        return -self.cost(task, node) if meets(task, node) else None

    def node_score(self, task: TaskView, node: NodeView) -> NodeScore:
        """How much the node likes the task; compares as a tuple, higher is better."""
        return (*self.standing(task), locality(task, node))

    def standing(self, task: TaskView) -> tuple[float, float, float]:
        """What all nodes agree on in ranking `task`; locality comes after it."""
        if self.priority_first:
            return task.priority, task.work, task.min_trust
        return task.work, task.priority, task.min_trust


def locality(task: TaskView, node: NodeView) -> float:
    """The share of the task's shard bytes that the node has, 0 to 1."""
    total = sum(task.shards.values()) if task.shards else 0
    if not total:
        return 0.0
    return sum(num_bytes for shard, num_bytes in task.shards.items() if shard in node.shards) / total


class ScoreRows:
    """The scores of `tasks` x `nodes`, one task's row at a time: memory grows with tasks + nodes, not their product.

    Scores order nodes and tasks as those of `Preferences` do; -inf where a node does not meet the requirements.
    """

    def __init__(self, preferences: Preferences, tasks: Sequence[TaskView], nodes: Sequence[NodeView]) -> None:
        self.tasks, self.nodes = tasks, nodes
        standings = [preferences.standing(task) for task in tasks]
        place = {standing: rank for rank, standing in enumerate(sorted(set(standings)))}
        self.rank = [place[standing] for standing in standings]  # whole numbers: locality fits between
        self._speed = _rates([node.speed for node in nodes], preferences.default_speed)
        self._down = _rates([node.down_bandwidth for node in nodes], preferences.default_bandwidth)
        self._up = _rates([node.up_bandwidth for node in nodes], preferences.default_bandwidth)
        self._latency = np.array([node.latency for node in nodes], dtype=np.float64)
        self._fit: dict[tuple[str, int, float], NDArray[np.bool_]] = {}

    def row(self, j: int) -> tuple[Floats, Floats]:
        """(task j's score for each node, each node's score for task j), both [nodes]."""
        task = self.tasks[j]
        down_bytes: float | Floats = task.down_bytes
        node_scores: float | Floats = self.rank[j]
        if total := sum(task.shards.values()):
            local = self._local_bytes(task)
            down_bytes = down_bytes + (total - local)
            node_scores = node_scores + local / (2 * total)
        cost = _cost(task, down_bytes, self._speed, self._down, self._up, self._latency)
        fit = self._fits(task)
        return np.where(fit, -cost, -np.inf), np.where(fit, node_scores, -np.inf)

    def matrices(self) -> tuple[Floats, Floats]:
        """(task_scores, node_scores), both [tasks, nodes]."""
        if not self.tasks:
            return np.empty((0, len(self.nodes))), np.empty((0, len(self.nodes)))
        rows = [self.row(j) for j in range(len(self.tasks))]
        return np.stack([row[0] for row in rows]), np.stack([row[1] for row in rows])

    @cached_property
    def _holders(self) -> dict[int, NDArray[np.intp]]:
        """Shard -> indices of the nodes that have it, for the shards some task needs."""
        needed = {shard for task in self.tasks for shard in task.shards}
        holders: dict[int, list[int]] = {shard: [] for shard in needed}
        for i, node in enumerate(self.nodes):
            for shard in needed & node.shards:
                holders[shard].append(i)
        return {shard: np.array(indices, dtype=np.intp) for shard, indices in holders.items()}

    def _local_bytes(self, task: TaskView) -> Floats:
        local = np.zeros(len(self.nodes))
        for shard, num_bytes in task.shards.items():
            local[self._holders[shard]] += num_bytes
        return local

    def _fits(self, task: TaskView) -> NDArray[np.bool_]:
        fit = self._fit.get(task.requirements)
        if fit is None:
            fit = np.array([meets(task, node) for node in self.nodes], dtype=np.bool_)
            self._fit[task.requirements] = fit
        return fit


def _rates(measured: list[float], default: float) -> Floats:
    """Positive rates: the default where nothing was measured, and never so small that a cost overflows."""
    rates = np.array(measured, dtype=np.float64)
    return np.maximum(np.where(rates == 0, default, rates), 1e-6)


def _cost(
    task: TaskView, down_bytes: float | Number, speed: Number, down: Number, up: Number, latency: Number
) -> Number:
    """p_ij + d_ij, for one node or for all at once; the order of operations is the same, so both agree bit for bit."""
    return task.work / speed + (latency + down_bytes / down + task.up_bytes / up)
