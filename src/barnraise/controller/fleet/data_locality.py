"""Which shards the nodes have: those that they were given rows of, as was seen, not as they say.

A node keeps what it has fetched on its disk, so it has it still when it comes back. After a restart of the controller
it is found anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnraise.controller.fleet.records import NodeRecords
from barnraise.controller.state.part import Context, Part
from barnraise.core.types import kind_of
from barnraise.ledger.decisions import Assigned, Decision

MOST_SHARDS = 64
"""Of a node that are known: the newest."""


class DataLocality(Part):
    """Notes the newest shards of each node."""

    def __init__(self, context: Context, records: NodeRecords) -> None:
        super().__init__(context)
        self.records = records

    def of(self, node: str) -> frozenset[int]:
        """The shards that a node has."""
        return self.records[node].shards.held

    def _assigned(self, d: Assigned) -> None:
        if not kind_of(d.kind).trains:
            return
        shards = self.records[d.node].shards
        known = shards.newest
        for rows in d.rows:
            known.pop(rows.shard, None)
            known[rows.shard] = None
        while len(known) > MOST_SHARDS:
            del known[next(iter(known))]
        if shards.held != known.keys():
            shards.held = frozenset(known)

    def sees(self) -> dict[type[Decision], Callable[[Any], None]]:
        return {Assigned: self._assigned}
