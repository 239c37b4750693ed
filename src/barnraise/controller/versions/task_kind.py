"""The interface of a kind of task: its work, the suitable nodes, and the judgement of its results.

Common functions are elsewhere: leases and release (`membership`), requests (`dispatch`), payloads (`uploads`), verdicts
(`inspection`), repetition and totals (`fold`, by the kind's traits in `core.types`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from barnraise.controller.fleet.cost_model import CostModel
from barnraise.controller.state.actions import Send
from barnraise.controller.state.part import Context, Part, Steps
from barnraise.controller.state.state import NodeState, Work
from barnraise.core.types import AnyTask, Result, Task, name_of
from barnraise.ledger.decisions import Assigned
from barnraise.matching.base import TaskView
from barnraise.wire.messages import Assign

ANY_STALENESS = 1 << 31
"""A bound that no result's staleness reaches."""


class TaskKind(Part):
    """One kind of task.

    A subclass names its struct, and overrides the methods that it needs.
    """

    task: type[Task]
    yields: ClassVar[bool] = False
    """Whether such work waits while its node has to train for the next version."""

    def __init__(self, context: Context, cost_model: CostModel) -> None:
        super().__init__(context)
        self.cost_model = cost_model
        self.name = name_of(self.task)  # on the ledger and on the wire

    # Assignment

    @property
    def open(self) -> bool:
        """Return whether nodes that ask now get work of this kind.

        A kind that is not matched is never open.
        """
        return False

    def fresh(self, nodes: Sequence[NodeState]) -> Sequence[TaskView]:
        """Return work that no node had before, for matching with the nodes that ask, by ids up to 0.

        A kind that is not open has none, and gets no nodes.
        """
        return ()

    def looked_for(self) -> Steps:
        """Handle the consequences of a call of `fresh`."""
        yield from ()

    def offers(self) -> Sequence[TaskView]:
        """Return tasks that do not run out as they are assigned: the same sequence while nothing has changed."""
        return ()

    def waits(self, lost: Work) -> bool:
        """Return whether lost work of this kind can be done again now."""
        return self.open

    def suits(self, node: NodeState, have: int) -> bool:
        """Return whether a node that has version `have` can be given work of this kind now."""
        return True

    def only(self, lost: Work) -> frozenset[str]:
        """Return the nodes that may do lost work of this kind; empty: all that can.

        Work of `fresh` and `offers` says that in its views (`TaskView.only`).
        """
        return frozenset()

    def least_trust(self) -> float:
        """Return the weight that a node needs (`trust.reputation`) for work of this kind now.

        Trusted work is for nodes that are not on probation, while any of them can do it.
        """
        return 0.0

    def give(self, node: NodeState, have: int, work: Work | TaskView) -> Steps:
        """Assign `work`, lost or offered by `fresh`, to a node that has version `have`.

        Unmatched kinds are not assigned so.
        """
        yield from ()

    def assigned(self, decision: Assigned, task: AnyTask) -> Steps:
        """Record the assignment, and send its message."""
        yield self.cost_model.expect(decision, task)
        yield Send(decision.node, Assign(task))

    # Results

    def too_late(self, work: Work) -> str:
        """Return why a result of `work` is not needed any more; empty while it is."""
        return ""

    def refuse(self, result: Result, work: Work, version: int) -> str:
        """Return why `result`, arriving when `version` was the newest, is no answer to `work`; empty when it can be."""
        return ""

    def recorded(self, result: Result, work: Work) -> Result:
        """Return an accepted result as the ledger keeps its claims."""
        return result

    def taken(self, result: Result, work: Work) -> Steps:
        """Handle the consequences of an accepted result of `work`."""
        yield from ()

    def weight(self, result: Result, work: Work, tokens: int, trust: float, staleness: int) -> float:
        """Return the weight of a result of `tokens` tokens: `staleness` versions late, of a node with this trust."""
        return float(tokens)
