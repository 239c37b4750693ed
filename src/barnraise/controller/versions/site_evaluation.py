"""Measurement of a version by the sites, each on its own held-out rows; the loss is their mean.

Each present site that agrees gets one task for a version. A site that agrees to the mean alone is on the ledger without
its loss, which only this process knows: after a restart the next version is measured instead. The mean is not told
where it would give away the loss of one such site.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import msgspec

from barnraise.controller.fleet.cost_model import CostModel
from barnraise.controller.fleet.membership import Membership
from barnraise.controller.fleet.pacing import Pacing
from barnraise.controller.fleet.speeds import Speeds
from barnraise.controller.state.part import Context, Steps
from barnraise.controller.state.state import KeptFinding, NodeState, Work
from barnraise.controller.versions.evaluation import PATIENCE, Evaluation
from barnraise.controller.versions.publishing import Publishing
from barnraise.core.types import FORWARD, Evaluate, Result, RowRange
from barnraise.matching.base import TaskView

_FIRST = -(1 << 41)
"""Ids of views from here down: no other kind has that many."""


class SiteEvaluation(Evaluation):
    """Keeps the losses of the sites for the version that is being measured."""

    def __init__(
        self,
        context: Context,
        cost_model: CostModel,
        membership: Membership,
        speeds: Speeds,
        pacing: Pacing,
        publishing: Publishing,
    ) -> None:
        super().__init__(context, cost_model, membership, speeds, pacing, publishing)
        self.version = -1  # a measurement that began before a restart is not known
        self.losses: dict[int, float] = {}  # by assignment

    # Tasks

    def fresh(self, nodes: Sequence[NodeState]) -> Sequence[TaskView]:
        """Return a task for each of the nodes that is to measure."""
        there = [node for node in nodes if self._is_wanted(node)] if self.open and self._reachable else []
        return [
            TaskView(
                _FIRST - number,
                self._rows(node).stop * self.plan.row_tokens / FORWARD,
                self.name,
                self.settings.payloads.snapshot,
                priority=2,
                only=frozenset({node.id}),
            )
            for number, node in enumerate(there)
        ]

    def _is_wanted(self, node: NodeState) -> bool:
        """Return whether a site agrees to measure, and has not begun with the version."""
        site = self.state.roster.sites.get(node.id)
        able = site is not None and site.held_out > 0 and site.losses != "off" and node.live
        return able and not self.membership.is_unwilling(node.id) and node.id not in {w.node for w in self._begun()}

    def _begun(self) -> Iterator[Work]:
        """Yield the work on the version that is open, or done."""
        if self.version < 0:
            return
        yield from (w for w in self.state.works.values() if w.task is Evaluate and w.base == self.version)
        yield from (finding.work for finding in self._of_version())

    def _of_version(self) -> list[KeptFinding]:
        there = self.state.record.findings.values()
        return [one for one in there if one.work.base == self.version and one.work.assignment in self.losses]

    def _rows(self, node: NodeState) -> RowRange:
        site = self.state.roster.sites[node.id]
        return RowRange(site.lane, 0, min(self.plan.rows, site.held_out))

    def waits(self, lost: Work) -> bool:
        """Return False: a site whose work was lost gets another task."""
        return False

    def suits(self, node: NodeState, have: int) -> bool:
        return self._reachable and self._is_wanted(node)

    def least_trust(self) -> float:
        return 0.0

    # Findings

    def recorded(self, result: Result, work: Work) -> Result:
        """Return the result without its loss, unless the site agrees that the ledger has it."""
        site = self.state.roster.sites.get(work.node)
        if site is not None and site.losses == "each":
            return result
        return msgspec.structs.replace(result, loss=0.0)

    def taken(self, result: Result, work: Work) -> Steps:
        self.losses[work.assignment] = result.loss
        self.until = self.now + PATIENCE
        yield from ()

    def look(self) -> Steps:
        """Finish the measurement once each site that is to measure has done so."""
        if not self.open:
            return
        self.until = min(self.until, self.now + PATIENCE)
        if not self._shared:
            return
        self._see_whether_to_begin_anew()
        waiting = any(work.task is Evaluate and work.base == self.version for work in self.state.works.values())
        present = map(self.state.nodes.__getitem__, self.state.roster.sites)
        if self._shared and not waiting and not any(map(self._is_wanted, present)):
            yield from self._finish()

    def expire(self) -> Steps:
        """Finish with the losses that there are, once no more of them come."""
        if self.now < self.until or not self.open:
            return
        there = self._shared and bool(self._of_version())
        if any(map(self._waited_for, self.state.works.values())) or not (there or self.state.progress.final):
            self.until = self.now + PATIENCE
        else:
            yield from self._finish()

    def _finish(self) -> Steps:
        """Record the mean over the predictions of all sites, as far as it gives away the loss of none."""
        found = self._of_version()
        private = [one for one in found if self.state.roster.sites[one.work.node].losses != "each"]
        if len(private) == 1:
            found.remove(private[0])
        weight = sum(one.weight for one in found)
        total = sum(self.losses[one.work.assignment] * one.weight for one in found)
        version = self.version if self._shared else self.state.newest.version
        tokens = self.tokens if self._shared else self.state.totals.version_tokens
        self.losses.clear()
        yield from self._note(version, total / weight if weight else math.nan, tokens, len(found))
