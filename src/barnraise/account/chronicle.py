"""What happened in a run, in sentences: the same for the live view, `status` and the report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from barnraise.core.text import printable
from barnraise.core.units import count_text
from barnraise.ledger import LedgerView, NodeChanged, Noted


@dataclass(frozen=True)
class Happening:
    """One thing worth telling. `kind` is that of the event, or joined, back, restarted, left, killed or
    revoked for a node."""

    time: float
    kind: str
    node: str
    text: str


class Chronicle:
    """Turns what the ledger says of nodes and events into sentences; what is routine is left out.

    Reads on from where it stopped, so that it can follow a run that works.
    """

    def __init__(self, view: LedgerView) -> None:
        self._view, self._last_id = view, 0
        self._sessions: dict[str, int] = {}
        self._live: set[str] = set()
        self.dismissed: set[str] = set()  # nodes whose process ended as it was told to, when the run did

    def read(self) -> list[Happening]:
        """What happened since the last call, the oldest first."""
        found = []
        for row_id, decision in self._view.news(self._last_id):
            self._last_id = row_id
            told = self._node(decision) if isinstance(decision, NodeChanged) else self._event(decision)
            if told is not None:
                kind, text = told
                found.append(Happening(decision.time, kind, decision.node, text))
        return found

    def _node(self, changed: NodeChanged) -> tuple[str, str] | None:
        node = changed.node
        if changed.change == "joined":
            before, present = self._sessions.get(node), node in self._live
            self._sessions[node] = changed.session
            self._live.add(node)
            self.dismissed.discard(node)
            if before is None:
                return "joined", f"{node} joined"
            if before != changed.session:
                return "restarted", f"{node} was started again"
            return None if present else ("back", f"{node} is back")
        if changed.change == "enrolled":
            return None
        self._live.discard(node)
        if changed.change == "ended":
            self.dismissed.add(node)
            return None
        gone = "may take part no more" if changed.change == "revoked" else "is gone"
        return changed.change, f"{node} {gone}: {printable(changed.reason)}"

    def _event(self, noted: Noted) -> tuple[str, str] | None:
        detail = noted.detail
        if noted.kind == "evaluated":
            loss = "not a number" if detail["loss"] is None else f"{detail['loss']:.3f}"
            return noted.kind, f"version {detail['version']}: loss {loss}"
        if noted.kind == "buffer_size":
            return noted.kind, f"K is {detail['nodes']} ({detail['live']} live)"
        if noted.kind == "resumed":
            return noted.kind, f"the controller was started again, at version {detail['version']}"
        if noted.kind == "left_over":
            count = detail["contributions"]
            return (noted.kind, f"{count_text(count, 'contribution')} left over") if count else None
        if noted.kind == "run_file":
            return (noted.kind, f"the run file changed: {printable(detail['changed'])}") if detail["changed"] else None
        words = _REASONED.get(noted.kind)
        if words is None:
            return None
        reason = printable(str(detail.get("reason", "")))
        return noted.kind, words.format(node=printable(noted.node) or "?", reason=reason)


_REASONED = {
    "paused": "paused: {reason}",
    "continued": "goes on",
    "stopping": "stopping: {reason}",
    "interrupted": "interrupted: {reason}",
    "finished": "finished: {reason}",
    "advice": "advice: {reason}",
    "checkpoint_failed": "a checkpoint failed: {reason}",
    "voided": "a contribution of {node} is void: {reason}",
    "version_refused": "a version was made without its contributions: {reason}",
    "frame_dropped": "a frame from {node} was dropped: {reason}",
}


def plain(text: str, longest: int) -> str:
    """`printable`, in ASCII: for columns."""
    return printable(text.encode("ascii", "replace").decode(), longest)


def of_note(happenings: Iterable[Happening]) -> list[Happening]:
    """Without the routine of a healthy run: evaluations and the size of the buffer."""
    return [happening for happening in happenings if happening.kind not in ("evaluated", "buffer_size")]
