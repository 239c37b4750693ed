"""Residuals: once the budget is met, all nodes are asked for the residuals of error feedback."""

from __future__ import annotations

from barnraise.controller.fleet.cost_model import CostModel
from barnraise.controller.fleet.membership import Membership
from barnraise.controller.fleet.records import NodeRecords
from barnraise.controller.fleet.speeds import Speeds
from barnraise.controller.state.part import Context, Steps
from barnraise.controller.state.state import Work
from barnraise.controller.versions.task_kind import ANY_STALENESS, TaskKind
from barnraise.controller.work.admission import refuse_update
from barnraise.controller.work.training import TOO_LATE
from barnraise.core.types import Contribution, Flush, ParameterRange, Result
from barnraise.ledger.decisions import Assigned, Terms


class Flushing(TaskKind):
    """The submission of a residual, which no other node can do."""

    task = Flush

    def __init__(
        self, context: Context, records: NodeRecords, cost_model: CostModel, membership: Membership, speeds: Speeds
    ) -> None:
        super().__init__(context, cost_model)
        self.records, self.membership, self.speeds = records, membership, speeds
        self.payloads = context.settings.payloads

    def look(self) -> Steps:
        state = self.state
        if state.progress.flushing is None or state.progress.final:
            return
        for node in [state.nodes[name] for name in self.records.present if name not in state.progress.flushed]:
            if any(state.works[number].task is Flush for number in node.open):
                continue
            if self.membership.can(node.id, self.name):
                yield from self._ask(node.id)

    def _ask(self, node: str) -> Steps:
        """Ask a node for its residual, which then includes its stopped training task; other tasks go to other nodes."""
        for opened in list(self.state.nodes[node].open):
            if not self.state.works[opened].task.contributes:
                yield from self.membership.release(node, opened, "it submits its residual")
        number, base = self.state.totals.assigned + 1, self.state.newest.version
        whole = ParameterRange(0, self.payloads.exchanged)
        decision = Assigned(
            time=self.now,
            assignment=number,
            node=node,
            kind=self.name,
            base=base,
            tokens=0,
            local_steps=0,
            rows=(),
            cursor=self.state.totals.rows,
            terms=Terms(max_staleness=ANY_STALENESS, learning_rate=0.0, parameters=whole),
        )
        yield from self.assigned(decision, Flush(id=number, base=base, parameters=whole))

    def too_late(self, work: Work) -> str:
        return TOO_LATE if self.state.progress.final else ""

    def refuse(self, result: Result, work: Work, version: int) -> str:
        assert isinstance(result, Contribution)
        return refuse_update(result, work, self.payloads.last_codec, self.payloads)

    def weight(self, result: Result, work: Work, tokens: int, trust: float, staleness: int) -> float:
        """Return the weight of all the node's earlier contributions."""
        node = self.state.nodes[work.node]
        return (self.speeds.usable(node) or 1.0) * trust
