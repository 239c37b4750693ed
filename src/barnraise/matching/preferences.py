"""Two-sided preferences from measurements, in which a requirement always holds.

A task prefers the node that returns it soonest: least c_ij = p_ij + d_ij, compute plus transfer, and the node's
congestion price (`prices.py`). A node ranks the larger size class first, then priority, then trust (a task that few are
trusted with), then locality (the share of its data already there). Size first matters: on lognormal speeds, nodes that
rank by priority and locality alone make a stable matching about as expensive as a random one.

Sizes are rounded up to half octaves, so that tasks of nearly one size are equals: among them a node keeps its own, and
few move when one comes or goes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from barnraise.core.errors import OptionError

from .base import NodeView, TaskView, meets

NodeScore = tuple[float, float, float, float]

PER_OCTAVE = 2
"""Size classes to a factor of two."""

NO_WORK = -10_000
"""The class of a task without work: below any that has some."""

SLOWEST = 1e-6
"""Lower bound of rates, so that no cost overflows."""


@dataclass(frozen=True, slots=True)
class Preferences:
    """Rules for costs and ranks.

    Rates of 0 (not measured) count as the defaults; OptionError unless these are above 0, or if `switching_cost`
    (seconds that a move to another node must gain: caches there are cold) is negative.
    """

    default_speed: float = 1000.0  # tokens a second
    default_bandwidth: float = 1.25e6  # bytes a second: 10 Mbit/s
    priority_first: bool = False  # nodes rank priority before size
    switching_cost: float = 0.0

    def __post_init__(self) -> None:
        for name in ("default_speed", "default_bandwidth"):
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise OptionError(f"preferences: option '{name}' is {value}, but must be finite and above 0")
        if not 0 <= self.switching_cost < float("inf"):
            raise OptionError(
                f"preferences: option 'switching_cost' is {self.switching_cost}, but must be finite and at least 0"
            )

    def coefficients(self, node: NodeView) -> tuple[float, float, float, float]:
        """Return the seconds on `node` for a unit of work, a byte down, a byte up, and in any case."""
        return (
            1 / max(node.speed or self.default_speed, SLOWEST),
            1 / max(node.down_bandwidth or self.default_bandwidth, SLOWEST),
            1 / max(node.up_bandwidth or self.default_bandwidth, SLOWEST),
            node.latency,
        )

    def cost(self, task: TaskView, node: NodeView) -> float:
        """Return c_ij in seconds: fetch, compute, send back; without requirements and prices."""
        down_bytes = task.down_bytes
        if task.shards:
            down_bytes += sum(num_bytes for shard, num_bytes in task.shards.items() if shard not in node.shards)
        work, down, up, fixed = self.coefficients(node)
        return down_bytes * down + task.up_bytes * up + task.work * work + fixed

    def task_score(self, task: TaskView, node: NodeView) -> float | None:
        """Return how much the task likes the node, higher is better; None if it does not meet the requirements."""
        return -self.cost(task, node) if meets(task, node) else None

    def node_score(self, task: TaskView, node: NodeView) -> NodeScore:
        """Return how much the node likes the task; compares as a tuple, higher is better."""
        return (*self.standing(task), locality(task, node))

    def standing(self, task: TaskView) -> tuple[float, float, float]:
        """Return the part of the rank of `task` that is equal on all nodes; locality follows it."""
        size = size_class(task.work)
        if self.priority_first:
            return task.priority, size, task.min_trust
        return size, task.priority, task.min_trust

    def level(self, task: TaskView) -> tuple[float, ...]:
        """Return the part of `standing` by which room is handed down; with sizes, the size class comes last."""
        return self.standing(task)[: 2 if self.priority_first else 1]


@lru_cache(maxsize=4096)
def size_class(work: float) -> int:
    """Return the least k with work <= 2^(k/2): half-octave classes.

    >>> [size_class(work) for work in (1, 1.2, 2**0.5, 1.5, 2, 1000)]
    [0, 1, 1, 2, 2, 20]
    """
    if work <= 0:
        return NO_WORK
    index = math.ceil(PER_OCTAVE * math.log2(work))
    while class_size(index) < work:  # corrects rounding of the logarithm, either way
        index += 1
    while class_size(index - 1) >= work:
        index -= 1
    return max(index, NO_WORK + 1)


def class_size(index: float) -> float:
    """Return the largest work in class `index`."""
    return 0.0 if index == NO_WORK else 2.0 ** (index / PER_OCTAVE)


def locality(task: TaskView, node: NodeView) -> float:
    """Return the share of the task's shard bytes that the node has, 0 to 1."""
    if task.shards.keys().isdisjoint(node.shards):
        return 0.0
    total = sum(task.shards.values())
    if not total:
        return 0.0
    return sum(num_bytes for shard, num_bytes in task.shards.items() if shard in node.shards) / total
