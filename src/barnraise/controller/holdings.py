"""Which shards the nodes have: those that they were given rows of, as was seen, not as they say.

A node keeps what it has fetched on its disk, so it has it still when it comes back. After a restart of the controller
it is found anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Set
from typing import Any

from barnraise.controller.part import Context, Part
from barnraise.core.types import kind_of
from barnraise.ledger.decisions import Assigned, Decision

MOST_SHARDS = 64
"""Of a node that are known: the newest."""

_NOTHING: Set[int] = frozenset()


class Holdings(Part):
    """`working` says how many nodes, of those here, were last given rows of a shard."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.working: defaultdict[int, int] = defaultdict(int)
        self._shards: dict[str, dict[int, None]] = {}
        self._last: dict[str, int] = {}

    def of(self, node: str) -> Set[int]:
        """The shards that a node has."""
        found = self._shards.get(node)
        return found.keys() if found else _NOTHING

    def _assigned(self, d: Assigned) -> None:
        if not kind_of(d.kind).trains or not d.rows:
            return
        known = self._shards.setdefault(d.node, {})
        for rows in d.rows:
            known.pop(rows.shard, None)
            known[rows.shard] = None
        while len(known) > MOST_SHARDS:
            del known[next(iter(known))]
        self.forget(d.node)
        self._last[d.node] = shard = d.rows[-1].shard
        self.working[shard] += 1

    def forget(self, node: str) -> None:
        """It works on nothing now."""
        shard = self._last.pop(node, None)
        if shard is not None:
            self.working[shard] -= 1

    def sees(self) -> dict[type[Decision], Callable[[Any], None]]:
        return {Assigned: self._assigned}
