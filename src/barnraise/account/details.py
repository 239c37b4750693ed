"""The newest facts about each node: its task, its payloads, its link, its speed, and the checks of its work."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from barnraise.account.reducer import Kinds, Reducer
from barnraise.ledger import Assigned, Judged, LedgerView, Noted, notes


class NodeDetail(msgspec.Struct):
    """The newest facts about a node; 0 where nothing is known.

    `kind` and `since` are of its newest assignment, with its local steps and its bound on staleness. `payload` are the
    bytes of its newest result, `steps` those that it has taken in accepted contributions. `rate`, `up` and
    `availability` are the controller's observations, `down` is the node's claim (bytes a second). `suspicion` is that
    of its newest score, None without one; `repeated` of its contributions were repeated, of which `sound` were
    confirmed.
    """

    kind: str = ""
    since: float = 0.0
    local_steps: int = 0
    bound: int = 0
    payload: int = 0
    steps: int = 0
    rate: float = 0.0
    up: float = 0.0
    down: float = 0.0
    availability: float = 0.0
    suspicion: float | None = None
    checked: tuple[int, int] = (0, 0)

    @property
    def repeated(self) -> int:
        return self.checked[0]

    @property
    def sound(self) -> int:
        return self.checked[1]


class Details(Reducer):
    """Keeps the newest facts by node, and the assignments without a verdict: each one's node."""

    kinds: ClassVar[Kinds] = (Assigned, Judged, notes.Released, notes.Sampled, notes.Tuned, notes.Scored, notes.Audited)

    nodes: dict[str, NodeDetail] = msgspec.field(default_factory=dict)
    open: dict[int, str] = msgspec.field(default_factory=dict)

    def add(self, row_id: int, decision: object, view: LedgerView) -> None:
        if isinstance(decision, Assigned):
            detail = self._of(decision.node)
            detail.kind, detail.since = decision.kind, decision.time
            detail.local_steps, detail.bound = decision.local_steps, decision.terms.max_staleness
            self.open[decision.assignment] = decision.node
        elif isinstance(decision, Judged):
            self.open.pop(decision.assignment, None)
            detail = self._of(decision.node)
            if decision.contributes:
                detail.payload, detail.steps = decision.claim.num_bytes, detail.steps + max(0, decision.claim.steps)
        elif isinstance(decision, Noted):
            self._noted(decision)

    def busy(self) -> dict[str, int]:
        """Return the number of tasks that each node has now; nodes without one are left out."""
        found: dict[str, int] = {}
        for node in self.open.values():
            found[node] = found.get(node, 0) + 1
        return found

    def _noted(self, d: Noted) -> None:
        note = d.note
        if isinstance(note, notes.Released):
            self.open.pop(note.assignment, None)
            return
        detail = self._of(d.node)
        if isinstance(note, notes.Sampled):
            detail.rate, detail.up, detail.availability = note.tokens_per_second, note.up, note.availability
            detail.down = note.said.get("down", 0.0)
        elif isinstance(note, notes.Tuned):
            detail.up, detail.down = note.up or detail.up, note.down or detail.down
        elif isinstance(note, notes.Scored):
            detail.suspicion = note.suspicion
        elif isinstance(note, notes.Audited):
            detail.checked = detail.checked[0] + 1, detail.checked[1] + (note.sound is not False)

    def _of(self, node: str) -> NodeDetail:
        found = self.nodes.get(node)
        if found is None:
            found = self.nodes[node] = NodeDetail()
        return found
