"""Schedulers that plan for all nodes together, and give a node that asks its planned tasks."""

from __future__ import annotations

from collections.abc import Sequence

from .base import NodeId, NodeView, Scheduler, TaskId, TaskView
from .market import NOISE, same_but_for_room


class Planned(Scheduler):
    """Runs `assign` over the tasks on offer and all nodes that have asked, busy ones too.

    The plan is computed again when nodes or tasks have changed. Tasks that are assigned once go to the nodes that ask.
    It remembers nodes and plan.
    """

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[NodeId, NodeView] = {}
        self._plan: dict[NodeId, TaskId] | None = None

    def offer(self, tasks: Sequence[TaskView]) -> None:
        super().offer(tasks)
        self._plan = None

    def place(self, tasks: Sequence[TaskView], nodes: Sequence[NodeView]) -> list[tuple[TaskId, NodeId]]:
        pairs = self.assign(tasks, nodes) if tasks else []
        served = {node_id for _, node_id in pairs}
        for node in nodes:
            known = self._known.get(node.id)
            if known is None or not same_but_for_room(known, node, NOISE):
                self._known[node.id], self._plan = node, None
        for node in nodes:
            if node.id not in served and self.on_offer:
                pairs += self._planned(node)
        return pairs

    def _planned(self, node: NodeView) -> list[tuple[TaskId, NodeId]]:
        """Return the planned tasks of a node; those that it can do, if all of them are planned for others."""
        if self._plan is None:
            everyone = list(self._known.values())
            planned = self.assign(self.offered(len(everyone)), everyone)
            self._plan = {node_id: self.original(task_id) for task_id, node_id in reversed(planned)}
        if node.id in self._plan:
            return [(self._plan[node.id], node.id)]
        return self.assign(self.on_offer, [node])

    def forget(self, node: NodeId) -> None:
        if self._known.pop(node, None) is not None:
            self._plan = None
