"""How nodes do, onto the ledger: what was seen of them, and what they say, at most once a minute each.

What a node says of itself is for the reader of the ledger. Nothing is decided by it, but that it may get shorter rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from barnraise.controller.fleet.memory_limits import MemoryLimits
from barnraise.controller.fleet.records import NodeRecords
from barnraise.controller.state.events import Event, Reported
from barnraise.controller.state.part import Context, Part, Steps
from barnraise.core.types import Telemetry
from barnraise.ledger.decisions import Noted
from barnraise.ledger.notes import Sampled

INTERVAL = 60.0
"""Seconds between two rows of a node."""

ROWS_PER_SECOND = 10.0
"""Of all nodes together: of a large fleet each has fewer."""


class Sampling(Part):
    """Notes when each node had its last row."""

    def __init__(self, context: Context, records: NodeRecords, memory_limits: MemoryLimits) -> None:
        super().__init__(context)
        self.records, self.memory_limits = records, memory_limits

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

    def events(self) -> dict[type[Event], Callable[[Any], Steps]]:
        return {Reported: self._reported}


def _numbers(telemetry: Telemetry) -> dict[str, float]:
    """What is known of it, by name."""
    told = msgspec.structs.asdict(telemetry)
    load, link = told.pop("load"), told.pop("link")
    told |= msgspec.structs.asdict(load) | msgspec.structs.asdict(link)
    return {name: float(value) for name, value in told.items() if value}
