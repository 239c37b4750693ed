"""What a kind of task is to the controller: what there is to do of it, for whom, and how its results are judged.

What all kinds share is done elsewhere, once: leases and release (`membership`), who asks (`dispatch`), payloads
(`uploads`), verdicts (`inspection`), redoing and totals (`fold`, by what the kind declares in `core.types`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from barnraise.controller.fleet.cost_model import CostModel
from barnraise.controller.state.actions import Send
from barnraise.controller.state.part import Context, Part, Steps
from barnraise.controller.state.state import NodeState, Work
from barnraise.core.types import AnyResult, AnyTask, Contribution, Result, Task, name_of
from barnraise.ledger.decisions import Assigned
from barnraise.matching.base import TaskView
from barnraise.wire.messages import Assign

ANY_STALENESS = 1 << 31
"""A result is worth its place however old it is."""


class TaskKind(Part):
    """One kind of task. A subclass names its struct, and overrides what concerns it."""

    task: ClassVar[type[Task]]
    result: ClassVar[type[Result]] = Contribution
    yields: ClassVar[bool] = False
    """Whether such work waits while its node has to train for the next version."""

    def __init__(self, context: Context, cost_model: CostModel) -> None:
        super().__init__(context)
        self.cost_model = cost_model
        self.name = name_of(self.task)  # on the ledger and on the wire

    # Giving it out

    @property
    def open(self) -> bool:
        """Whether work of this kind is given to those who ask now. A kind that is not matched is never open."""
        return False

    def fresh(self, nodes: Sequence[NodeState]) -> Sequence[TaskView]:
        """What there is to do that nobody had before, for nodes that ask to be matched with, by ids that are not above
        0."""
        return ()

    def looked_for(self) -> Steps:
        """What follows once `fresh` was asked."""
        yield from ()

    def standing(self) -> Sequence[TaskView]:
        """What does not run out as it is given away: the same sequence for as long as nothing has changed."""
        return ()

    def waits(self, lost: Work) -> bool:
        """Whether work of this kind that was lost can be done again now."""
        return self.open

    def suits(self, node: NodeState, have: int) -> bool:
        """Whether a node that has version `have` can be given work of this kind now."""
        return True

    def least_trust(self) -> float:
        """What a node must weigh (`trust.standing`) to be given work of this kind now. What is believed is for those
        who are not on probation, while there are any who can do it."""
        return 0.0

    def give(self, node: NodeState, have: int, work: Work | TaskView) -> Steps:
        """Assign `work`, lost or offered by `fresh`, to a node that has version `have`. What is not matched is not
        given so."""
        yield from ()

    def assigned(self, decision: Assigned, task: AnyTask) -> Steps:
        """The assignment, and the word of it."""
        yield self.cost_model.expect(decision, task)
        yield Send(decision.node, Assign(task))

    # Taking it in

    def too_late(self, work: Work) -> str:
        """Why nobody waits for a result of `work` any more; empty while it is wanted."""
        return ""

    def refuse(self, result: AnyResult, work: Work, version: int) -> str:
        """Why `result`, arriving when `version` was the newest, is no answer to `work`; empty when it can be."""
        return ""

    def taken(self, result: AnyResult, work: Work) -> Steps:
        """What follows from a result of `work` that was accepted."""
        yield from ()

    def weight(self, result: AnyResult, work: Work, tokens: int, staleness: int) -> float:
        """What a result counts for, of so many tokens, so many versions late."""
        return float(tokens)
