"""Which shards the nodes have: those that they were given rows of, as was seen, not as they say.

A node keeps what it has fetched on its disk, so it has it still when it comes back. After a restart of the controller
it is found anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnraise.controller.state.part import Context, Part
from barnraise.core.types import kind_of
from barnraise.ledger.decisions import Assigned, Decision

MOST_SHARDS = 64
"""Of a node that are known: the newest."""


class DataLocality(Part):
    """Keeps the newest shards of each node."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._shards: dict[str, frozenset[int]] = {}
        self._newest: dict[str, dict[int, None]] = {}

    def of(self, node: str) -> frozenset[int]:
        """The shards that a node has."""
        return self._shards.get(node, frozenset())

    def _assigned(self, d: Assigned) -> None:
        if not kind_of(d.kind).trains:
            return
        known = self._newest.setdefault(d.node, {})
        for rows in d.rows:
            known.pop(rows.shard, None)
            known[rows.shard] = None
        while len(known) > MOST_SHARDS:
            del known[next(iter(known))]
        if self.of(d.node) != known.keys():
            self._shards[d.node] = frozenset(known)

    def sees(self) -> dict[type[Decision], Callable[[Any], None]]:
        return {Assigned: self._assigned}
