"""The memory of nodes for rows: their claim, and less where they were seen to fail.

A node that three times lost or gave back rows of a length that it never did gets none of that length any more. A
machine dies for many reasons, so one loss says nothing, nor do losses of the shortest rows. Memory that its process
holds beyond its claim is not there for rows either. A limit is never above the node's claim, and it affects only that
node's own work. After a restart of the controller it is observed again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnraise.controller.fleet.backoff import Backoff
from barnraise.controller.fleet.records import MemoryRecord, NodeRecords
from barnraise.controller.state.part import Context, Part, Steps
from barnraise.controller.state.state import NodeState
from barnraise.core.types import Load, kind_of
from barnraise.core.units import bytes_text
from barnraise.ledger.decisions import Assigned, Change, Decision, Judged, NodeChanged, Noted
from barnraise.ledger.notes import DECLINED, NOT_HELD, RAISED, Advice, Released, Reopened
from barnraise.matching.base import LARGEST_AMOUNT
from barnraise.models.memory import PROCESS_BYTES

_UNKNOWN = int(LARGEST_AMOUNT)

TIMES = 3
"""Failures of a node on rows that it never did: preemptible machines die once or twice in a first task."""


class MemoryLimits(Part):
    """Notes the largest need that each node has met, and on which ones it broke."""

    def __init__(self, context: Context, records: NodeRecords, backoff: Backoff) -> None:
        super().__init__(context)
        self.records, self.tasks, self.backoff = records, context.settings.tasks, backoff
        self.corrections = 0
        self._least = min(self.tasks.needs.memory.values(), default=0)
        self._open: dict[int, int] = {}  # needs of open work on longer rows than the shortest
        self._untold: list[str] = []

    def of(self, node: NodeState) -> int:
        """Return the bytes that a node's rows have to fit into; huge where that is not known."""
        room, seen = node.session.profile.room or _UNKNOWN, self.records[node.id].memory
        if not seen.below and not seen.over:
            return room
        least = min(room - seen.over, (seen.below or room + 1) - 1)
        return min(room, max(least, seen.met, self._least))

    def told(self, node: NodeState, load: Load) -> None:
        """Record the main memory that its process claims to hold.

        It can only lower its limit, where that is in main memory.
        """
        profile = node.session.profile
        over = load.memory_bytes - PROCESS_BYTES - profile.room
        if profile.room and not profile.accelerator_bytes and over > 0:
            seen = self.records[node.id].memory
            seen.over = max(seen.over, over)

    # Observations

    def _assigned(self, d: Assigned) -> None:
        need = self.tasks.memory_for(d.rows) if kind_of(d.kind).trains else 0
        if need > self._least:
            self._open[d.assignment] = need

    def _judged(self, d: Judged) -> None:
        need = self._open.pop(d.assignment, 0)
        if need and d.verdict == "accepted":
            seen = self.records[d.node].memory
            if need > seen.met:
                seen.met = need
                seen.broke = [broke for broke in seen.broke if broke > need]

    def _noted(self, d: Noted) -> None:
        if type(d.note) is Reopened:
            work = self.state.works[d.note.assignment]
            need = self.tasks.memory_for(work.rows) if work.task.trains else 0
            if need > self._least:
                self._open[work.assignment] = need
        elif type(d.note) is Released and (need := self._open.pop(d.note.assignment, 0)):
            seen = self.records[d.node].memory
            raised = d.note.reason.startswith(RAISED)  # it says nothing of the machine
            if d.note.reason == NOT_HELD or (d.note.reason.startswith(DECLINED) and not raised):
                self._breaks(d.node, seen, need)
            elif seen.lost is not None:
                session, most = seen.lost
                seen.lost = session, max(most, need)

    def _changed(self, d: NodeChanged) -> None:
        if d.change.gone:
            session = self.state.nodes[d.node].session.id
            self.records[d.node].memory.lost = (session, 0) if self.backoff.was_lost(d.node) else None
        elif d.change == Change.JOINED:
            seen = self.records[d.node].memory
            (session, need), seen.lost = seen.lost or (d.session, 0), None
            if need and session != d.session:  # else it was present all the time
                self._breaks(d.node, seen, need)

    def _breaks(self, name: str, seen: MemoryRecord, need: int) -> None:
        """Count a failure on all its work at once."""
        if need <= seen.met or seen.broke_at == self.now:
            return
        seen.broke_at = self.now
        seen.broke = sorted((*seen.broke, need))[:TIMES]
        if len(seen.broke) == TIMES and seen.broke[-1] != seen.below:
            seen.below = seen.broke[-1]
            self.corrections += 1
            self._untold.append(name)

    def look(self) -> Steps:
        for name in self._untold:
            needed = bytes_text(self.records[name].memory.below)
            reason = f"broke {TIMES} times on rows that need {needed} of memory: it gets shorter ones from now on"
            yield Noted(self.now, Advice(reason), name)
        self._untold.clear()

    def sees(self) -> dict[type[Decision], Callable[[Any], None]]:
        return {Assigned: self._assigned, Judged: self._judged, Noted: self._noted, NodeChanged: self._changed}
