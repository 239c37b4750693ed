"""The rules that a market obeys at rest, computed from the definitions alone."""

from __future__ import annotations

import dataclasses

import numpy as np

from barnraise.matching import Market, NodeView, TaskView
from barnraise.matching.base import meets
from barnraise.matching.preferences import class_size, size_class


@dataclasses.dataclass
class Rest:
    """A market between two events, as a caller can see it from outside."""

    market: Market
    tasks: dict[int, TaskView]
    nodes: dict[str, NodeView]

    def __post_init__(self) -> None:
        self.preferences = self.market.preferences
        self.at, self.prices = self.market.assignment, self.market.prices

    def cost(self, task: TaskView, node: NodeView) -> float:
        """Return the cost that the task weighs: time, price and the cost of a move."""
        price = self.prices[node.id] * (task.work if self.market.sized else 1)
        moves = 0 if self.at.get(task.id) == node.id else self.preferences.switching_cost
        return self.preferences.cost(task, node) + price + moves

    def before(self, task: TaskView) -> tuple[float, ...]:
        """The part of its rank that decides who is given room first."""
        size = size_class(task.work)
        whole = (task.priority, size) if self.preferences.priority_first else (size,)
        return whole if self.market.sized else ()

    def slots(self, task: TaskView, node: NodeView, held: list[TaskView]) -> float:
        """How many tasks of its class a node takes: what the larger ones leave."""
        larger = [other for other in held if self.before(other) > self.before(task)]
        most = node.capacity - len(larger)
        size = class_size(size_class(task.work))
        if not self.market.sized or not size or node.work_capacity == 1e18:
            return most
        left = node.work_capacity - sum(other.work for other in larger)
        return min(most, np.floor(left / size + 1e-9))

    def check(self) -> None:
        held: dict[str, list[TaskView]] = {node: [] for node in self.nodes}
        for task_id, node_id in self.at.items():
            assert meets(self.tasks[task_id], self.nodes[node_id])
            held[node_id].append(self.tasks[task_id])
        for node_id, node in self.nodes.items():
            assert len(held[node_id]) <= node.capacity
            if self.market.sized:
                assert sum(task.work for task in held[node_id]) <= node.work_capacity * (1 + 1e-9)
        for task in self.tasks.values():
            here = self.at.get(task.id)
            for node in self.nodes.values():
                if node.id == here or not meets(task, node):
                    continue
                cost = self.cost(task, node)
                if here and not cost < self.cost(task, self.nodes[here]) - 1e-9 * (1 + cost):
                    continue
                peers = [other for other in held[node.id] if self.before(other) == self.before(task)]
                rank = self.preferences.node_score(task, node)
                room = len(peers) < self.slots(task, node, held[node.id])
                lower = any(self.preferences.node_score(other, node) < rank for other in peers)
                assert not room, f"task {task.id} would rather be on node {node.id}, which has room"
                assert not lower, f"task {task.id} and node {node.id} would rather have each other"
        assert self.market.blocking_pairs() == []
