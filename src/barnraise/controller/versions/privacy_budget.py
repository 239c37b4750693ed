"""The budget of differential privacy: no task is assigned that would spend more, and the run ends at the first.

The count rests on assignments (`privacy.spending`), which are on the ledger before their workers hear of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from barnraise.controller.state.events import StopRequested
from barnraise.controller.state.part import Context, Part, Steps, TaskHold
from barnraise.controller.state.state import NodeState
from barnraise.core.types import RowRange
from barnraise.ledger.decisions import Noted
from barnraise.ledger.notes import PrivacySpent
from barnraise.privacy.spending import SITE, Spending
from barnraise.trust.roles import WORKER


class PrivacyBudgetPart(Part):
    """Notes the budget and what is spent of it, and stops the run where nothing is left."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.settings = context.settings.payloads.protection.privacy

    def allows(self, node: str, rows: Sequence[RowRange], steps: int) -> bool:
        """Return whether the budget has room for a training task of `steps` steps on these rows."""
        spending = self.state.progress.spending
        if self.settings is None or spending is None:
            return self.settings is None
        return spending.after(node, rows, steps) <= self.settings.budget.most

    def stop(self) -> Steps:
        """End the run: its next task would spend more than the budget."""
        if self.settings is not None and self.state.progress.spending is not None:
            budget, spent = self.settings.budget, self.settings.epsilon(self.state.progress.spending.most)
            yield StopRequested(
                f"the budget of differential privacy has no room for the next task: epsilon {spent:.3g} of "
                f"{budget.epsilon:g} at delta {budget.delta:g} is spent for a {budget.unit}"
            )

    def look(self) -> Steps:
        spending, progress = self.state.progress.spending, self.state.progress
        if self.settings is None:
            return
        if spending is None:
            yield Noted(self.now, self.settings.budget)
            return
        if spending.most > spending.told:
            yield Noted(self.now, PrivacySpent(spending.most, self.settings.epsilon(spending.most)))
        if spending.unit == SITE and not (progress.stopping or progress.final) and self._lacks_sites(spending):
            yield from self.stop()

    def _lacks_sites(self, spending: Spending) -> bool:
        """Return whether sites have used their budgets up, so that no live one, or too few in all, can take a task.

        Those count whose update is in the buffer or on its way.
        """
        assert self.settings is not None
        state, most = self.state, self.settings.budget.most
        sites = [node for node in state.nodes.values() if node.badge.role == WORKER and not node.revoked]
        if self.context.settings.tasks.needs.sites is not None:
            sites = [node for node in sites if node.id in state.roster.sites]
        used_up = {node.id for node in sites if spending.is_used_up(node.id, most)}
        if not used_up:
            return False
        live = {node.id for node in sites if node.live}
        coming = {work.node for work in state.works.values() if work.task.trains}
        able = {node.id for node in sites}.difference(used_up).union(state.buffer.slots, coming)
        return bool(live) and (live <= used_up or len(able) < self._least)

    @property
    def _least(self) -> int:
        """Return the fewest sites of a version."""
        masks, versions = self.context.settings.payloads.protection.masks, self.context.settings.versions
        if masks is not None:
            return masks.least
        return versions.minimum_nodes if versions.yields else versions.least(self.state.num_live)

    def hold(self, node: NodeState, now: float) -> TaskHold | None:
        spending = self.state.progress.spending
        if self.settings is None or spending is None or spending.unit != SITE:
            return None
        if spending.is_used_up(node.id, self.settings.budget.most):
            return TaskHold(math.inf, "has spent its site's budget of differential privacy")
        if self.state.buffer.count(node.id) or any(self.state.works[number].task.trains for number in node.open):
            return TaskHold(math.inf, "has an update for the next version, and a further one would spend of its budget")
        return None
