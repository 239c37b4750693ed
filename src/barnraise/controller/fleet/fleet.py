"""The fleet: which nodes take part, which of them may work, and what matching knows of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from barnraise.controller.fleet.cost_model import CostModel
from barnraise.controller.fleet.data_locality import DataLocality
from barnraise.controller.fleet.memory_limits import MemoryLimits
from barnraise.controller.fleet.records import NodeRecord, NodeRecords
from barnraise.controller.state.part import Context, Part, TaskHold
from barnraise.controller.state.state import NodeState
from barnraise.matching.base import NodeView

ABSENT = TaskHold(math.inf, "it does not take part")


class Fleet(Part):
    """Answers questions about nodes from their records and their states.

    `holds` are asked in their order whether a node may work: `machine.HOLDS` lists the parts that they belong to.
    """

    def __init__(
        self,
        context: Context,
        records: NodeRecords,
        cost_model: CostModel,
        memory_limits: MemoryLimits,
        data_locality: DataLocality,
    ) -> None:
        super().__init__(context)
        self.records = records
        self.cost_model, self.memory_limits, self.data_locality = cost_model, memory_limits, data_locality
        self.holds: tuple[Callable[[NodeState, float], TaskHold | None], ...] = ()

    @property
    def present(self) -> Mapping[str, NodeRecord]:
        """Return the records of the nodes that take part, the longest silent first."""
        return self.records.present

    def __getitem__(self, node: str) -> NodeRecord:
        """The record of an enrolled node."""
        return self.records[node]

    def available(self, node: str, now: float | None = None) -> TaskHold | None:
        """Return why the node gets no task at `now`, and until when; None where it may work.

        `now` is the time of the current event by default.
        """
        if node not in self.records.present:
            return ABSENT
        time, known = self.context.now if now is None else now, self.state.nodes[node]
        for hold in self.holds:
            found = hold(known, time)
            if found is not None:
                return found
        return None

    def view(self, node: NodeState, kinds: frozenset[str]) -> NodeView:
        """Return the matcher's view of a node, with the `kinds` of tasks that it can be given now.

        It has observed speed and link, memory, trust and shards.
        """
        link = self.cost_model.link(node)
        return NodeView(
            node.id,
            self.cost_model.rate(node),
            link.up,
            link.down,
            link.latency,
            self.memory_limits.of(node),
            trust=node.tally.reputation.weight(),
            shards=self.data_locality.of(node.id),
            kinds=kinds,
            accelerator_bytes=node.session.profile.accelerator_bytes,
        )
