"""Samples of nodes for the ledger, at most once a minute each, and the cost of protections by their reports.

A node's claims are for the reader of the ledger. No decision depends on them, but that it may get shorter rows.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import msgspec

from barnraise.controller.fleet.memory_limits import MemoryLimits
from barnraise.controller.fleet.records import NodeRecords
from barnraise.controller.state.events import Event, Reported
from barnraise.controller.state.part import Context, Part, Steps
from barnraise.core.types import WARNED_OVERHEAD, Telemetry
from barnraise.ledger.decisions import Noted
from barnraise.ledger.notes import Advice, Sampled

INTERVAL = 60.0
"""Seconds between two rows of a node."""

ROWS_PER_SECOND = 10.0
"""Rows a second of all nodes together: in a large fleet each has fewer."""


class ProtectionCosts(Part):
    """Keeps the newest alpha of each node that takes part, and tells the host of the median once for each bound.

    No decision depends on the reports: a node could make them up.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.limit = context.settings.payloads.protection.overhead_limit
        self.bounds = sorted({WARNED_OVERHEAD, self.limit}) if self.limit else []
        self._alphas: dict[str, float] = {}

    def told(self, node: str, alpha: float) -> Steps:
        """Handle a node's report, 0 where it knows none."""
        if not self.bounds or not alpha:
            return
        self._alphas[node] = alpha
        found = median(self._alphas.values())
        passed = [bound for bound in self.bounds if found > bound]
        if not passed:
            return
        del self.bounds[: len(passed)]
        reason = (
            f"protections make the work of workers {found:.2f} times as long, by their own reports (told above "
            f"{passed[-1]:g}; privacy.overhead_limit is {self.limit:g}): longer tasks (training.local_steps) or fewer "
            "trained values (training.adapter) make it less"
        )
        yield Noted(self.now, Advice(reason))

    def forget(self, node: str) -> None:
        self._alphas.pop(node, None)


class Sampling(Part):
    """Notes when each node had its last row."""

    def __init__(
        self, context: Context, records: NodeRecords, memory_limits: MemoryLimits, costs: ProtectionCosts
    ) -> None:
        super().__init__(context)
        self.records, self.memory_limits, self.costs = records, memory_limits, costs

    def _reported(self, event: Reported) -> Steps:
        name, telemetry = event.node, event.telemetry
        node, record = self.state.nodes[name], self.records[name]
        self.memory_limits.told(node, telemetry.load)
        if self.now < record.sampled_at + max(INTERVAL, self.state.num_live / ROWS_PER_SECOND):
            return
        record.sampled_at = self.now
        learned = node.speed.learned
        seen = Sampled(
            learned.rate,
            learned.spread if learned.newest else 0.0,
            record.uplink,
            node.session.presence.share(self.now),
            _numbers(telemetry),
        )
        yield Noted(self.now, seen, name)
        yield from self.costs.told(name, telemetry.overhead)

    def events(self) -> dict[type[Event], Callable[[Any], Steps]]:
        return {Reported: self._reported}


def _numbers(telemetry: Telemetry) -> dict[str, float]:
    """Return the known numbers by name."""
    told = msgspec.structs.asdict(telemetry)
    load, link = told.pop("load"), told.pop("link")
    told |= msgspec.structs.asdict(load) | msgspec.structs.asdict(link)
    return {name: float(value) for name, value in told.items() if value}
