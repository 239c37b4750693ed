"""Rows that are too long for the memory of all present nodes: they wait, and the host is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnraise.controller.fleet.memory_limits import MemoryLimits
from barnraise.controller.state.part import Context, Part, Steps
from barnraise.core.units import bytes_text
from barnraise.ledger.decisions import Decision, NodeChanged, Noted
from barnraise.ledger.notes import Advice
from barnraise.models.memory import too_long


class Unschedulable(Part):
    """Keeps the lengths that were reported.

    It checks whenever nodes come or go, or turn out to have less memory.
    """

    def __init__(self, context: Context, memory_limits: MemoryLimits) -> None:
        super().__init__(context)
        self.memory_limits, self._corrections = memory_limits, 0
        self.memory = context.settings.tasks.needs.memory
        self._told: frozenset[int] = frozenset()
        self._changed = False

    def _node_changed(self, d: NodeChanged) -> None:
        self._changed = True

    def look(self) -> Steps:
        if not self._changed and self._corrections == self.memory_limits.corrections:
            return
        self._changed, self._corrections = False, self.memory_limits.corrections
        most, memory_limits = max(self.memory.values(), default=0), dict[str, int]()
        for node in self.state.nodes.values():
            if node.live:
                memory_limits[node.id] = self.memory_limits.of(node)
                if memory_limits[node.id] >= most:  # usually that of the first
                    self._told = frozenset()
                    return
        if not memory_limits:
            return
        nearest, lengths = too_long(self.memory, memory_limits)
        told, self._told = self._told, frozenset(lengths)
        for length in sorted(self._told - told):
            needed, has = bytes_text(self.memory[length]), bytes_text(memory_limits[nearest])
            reason = (
                f"rows of {length} tokens wait for a node with the memory: they need {needed}, and {nearest}, the "
                f"nearest, has {has}"
            )
            yield Noted(self.now, Advice(reason))

    def sees(self) -> dict[type[Decision], Callable[[Any], None]]:
        return {NodeChanged: self._node_changed}
