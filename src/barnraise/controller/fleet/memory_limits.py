"""How much memory nodes have for rows: what they say, and less where they were seen to break on it.

A node that three times lost or gave back rows of a length that it never did gets none so long any more. A machine dies
for many reasons, so one loss says nothing, nor do losses of the shortest rows. What its process holds beyond what it
said that it had is not there for rows either. Nothing makes a room larger than its node says, and nothing but that
node's own work follows from it. After a restart of the controller it is found anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnraise.controller.fleet.backoff import Backoff
from barnraise.controller.state.part import Context, Part, Steps
from barnraise.controller.state.state import NodeState
from barnraise.core.types import Load, kind_of
from barnraise.core.units import bytes_text
from barnraise.ledger.decisions import Assigned, Change, Decision, Judged, NodeChanged, Noted
from barnraise.ledger.notes import DECLINED, NOT_HELD, Advice, Released, Reopened
from barnraise.matching.base import LARGEST_AMOUNT
from barnraise.models.memory import PROCESS_BYTES

TIMES = 3
"""How often a node has to break on what it never did: preemptible machines die once or twice in a first task."""


class MemoryLimits(Part):
    """Keeps the needs of open work on long rows, the largest that each node has met, and on which ones it broke."""

    def __init__(self, context: Context, backoff: Backoff) -> None:
        super().__init__(context)
        self.tasks, self.backoff = context.settings.tasks, backoff
        self.below: dict[str, int] = {}  # what rows need of which a node gets none
        self.corrections = 0
        self._over: dict[str, int] = {}  # bytes that its process holds beyond its room
        self._least = min(self.tasks.needs.memory.values(), default=0)
        self._open: dict[int, int] = {}  # needs of work on longer rows than the shortest
        self._met: dict[str, int] = {}
        self._broke: dict[str, list[int]] = {}  # on what it never did
        self._broke_at: dict[str, float] = {}
        self._lost: dict[str, tuple[int, int]] = {}  # who went without a word: its session, and what it worked on
        self._untold: list[str] = []

    def of(self, node: NodeState) -> int:
        """Bytes that a node's rows have to fit into; huge where nothing is known."""
        room = node.session.profile.room or int(LARGEST_AMOUNT)
        if node.id not in self.below and node.id not in self._over:
            return room
        least = min(room - self._over.get(node.id, 0), self.below.get(node.id, room + 1) - 1)
        return min(room, max(least, self._met.get(node.id, 0), self._least))

    def told(self, node: NodeState, load: Load) -> None:
        """What its process holds of main memory, as it says: that can only make its room smaller, where that is in main
        memory."""
        profile = node.session.profile
        over = load.memory_bytes - PROCESS_BYTES - profile.room
        if profile.room and not profile.accelerator_bytes and over > self._over.get(node.id, 0):
            self._over[node.id] = over

    # What was seen

    def _assigned(self, d: Assigned) -> None:
        need = self.tasks.memory_for(d.rows) if kind_of(d.kind).trains else 0
        if need > self._least:
            self._open[d.assignment] = need

    def _judged(self, d: Judged) -> None:
        need = self._open.pop(d.assignment, 0)
        if d.verdict == "accepted" and need > self._met.get(d.node, 0):
            self._met[d.node] = need
            self._broke[d.node] = [broke for broke in self._broke.get(d.node, ()) if broke > need]

    def _noted(self, d: Noted) -> None:
        if type(d.note) is Reopened:
            work = self.state.works[d.note.assignment]
            need = self.tasks.memory_for(work.rows) if work.task.trains else 0
            if need > self._least:
                self._open[work.assignment] = need
        elif type(d.note) is Released and (need := self._open.pop(d.note.assignment, 0)):
            if d.note.reason == NOT_HELD or d.note.reason.startswith(DECLINED):
                self._breaks(d.node, need)
            elif d.node in self._lost:
                session, most = self._lost[d.node]
                self._lost[d.node] = session, max(most, need)

    def _changed(self, d: NodeChanged) -> None:
        if d.change.gone:
            self._lost.pop(d.node, None)
            if d.node in self.backoff.lost:
                self._lost[d.node] = self.state.nodes[d.node].session.id, 0
        elif d.change == Change.JOINED:
            session, need = self._lost.pop(d.node, (d.session, 0))
            if need and session != d.session:  # else it was there all the time
                self._breaks(d.node, need)

    def _breaks(self, name: str, need: int) -> None:
        """At once on all that it had, which counts as one."""
        if need <= self._met.get(name, 0) or self._broke_at.get(name) == self.now:
            return
        self._broke_at[name] = self.now
        broke = self._broke.setdefault(name, [])
        broke.append(need)
        broke.sort()
        del broke[TIMES:]
        if len(broke) == TIMES and broke[-1] != self.below.get(name):
            self.below[name] = broke[-1]
            self.corrections += 1
            self._untold.append(name)

    def look(self) -> Steps:
        for name in self._untold:
            needed = bytes_text(self.below[name])
            reason = f"broke {TIMES} times on rows that need {needed} of memory: it gets shorter ones from now on"
            yield Noted(self.now, Advice(reason), name)
        self._untold.clear()

    def sees(self) -> dict[type[Decision], Callable[[Any], None]]:
        return {Assigned: self._assigned, Judged: self._judged, Noted: self._noted, NodeChanged: self._changed}
