"""The events of a run as sentences: the same for the live view, `status` and the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from barnraise.account.metrics import value_text
from barnraise.account.reducer import Kinds, Reducer
from barnraise.core.text import LONGEST_NAME, LONGEST_SENTENCE, printable, shortened
from barnraise.core.units import count_text, duration_text, loss_text
from barnraise.ledger import Change, LedgerView, NodeChanged, Noted, notes


@dataclass(frozen=True)
class Happening:
    """One event of a run.

    `kind` is that of the event, or joined, back, restarted, left, killed or revoked for a node.
    """

    time: float
    kind: str
    node: str
    text: str


class Chronicle(Reducer):
    """Turns what the ledger says of nodes and events into sentences, without the routine.

    `happenings` has them, the oldest first. `sessions` and `live` are of nodes; those `dismissed` ended as they were
    told to, when the run did.
    """

    kinds: ClassVar[Kinds]

    happenings: list[Happening] = msgspec.field(default_factory=list)
    sessions: dict[str, int] = msgspec.field(default_factory=dict)
    live: set[str] = msgspec.field(default_factory=set)
    dismissed: set[str] = msgspec.field(default_factory=set)

    def add(self, row_id: int, decision: object, view: LedgerView) -> None:
        told = self.tell(decision)
        if told is not None:
            self.happenings.append(told)

    def tell(self, decision: object) -> Happening | None:
        """Return the next row as an event, without keeping it; None for the routine."""
        if not isinstance(decision, NodeChanged | Noted):
            return None
        told = self._node(decision) if isinstance(decision, NodeChanged) else self._event(decision)
        if told is None:
            return None
        kind, text = told
        return Happening(decision.time, kind, decision.node, shortened(text, LONGEST_SENTENCE))

    def take(self) -> list[Happening]:
        """Return what happened since the last call, which is kept no longer."""
        found, self.happenings = self.happenings, []
        return found

    def _node(self, changed: NodeChanged) -> tuple[str, str] | None:
        node, name = changed.node, printable(changed.node, LONGEST_NAME)
        if changed.change == Change.JOINED:
            before, present = self.sessions.get(node), node in self.live
            self.sessions[node] = changed.session
            self.live.add(node)
            self.dismissed.discard(node)
            if before is None:
                return "joined", f"{name} joined"
            if before != changed.session:
                return "restarted", f"{name} was started again"
            return None if present else ("back", f"{name} is back")
        if not changed.change.gone:
            return ("rekeyed", f"{name} took new keys") if changed.change == Change.REKEYED else None
        self.live.discard(node)
        if changed.change == Change.ENDED:
            self.dismissed.add(node)
            return None
        gone = "may no longer take part" if changed.change == Change.REVOKED else "is gone"
        kind = str(changed.change if changed.change in (Change.KILLED, Change.REVOKED) else Change.LEFT)
        return kind, f"{name} {gone}: {printable(changed.reason)}"

    def _event(self, noted: Noted) -> tuple[str, str] | None:
        tell = _TOLD.get(type(noted.note))
        told = tell(noted.note, noted.node) if tell is not None else ""
        return (noted.kind, told) if told else None


def _evaluated(note: notes.Evaluated, node: str) -> str:
    return f"version {note.version}: {'no finite loss' if note.loss is None else f'loss {loss_text(note.loss)}'}"


def _measured(note: notes.Measured, node: str) -> str:
    values = ", ".join(f"{printable(name)} {value_text(value)}" for name, value in note.values.items())
    return f"version {note.version}: {values}" if values else ""


def _disputed(note: notes.Disputed, node: str) -> str:
    found = zip(note.nodes, note.losses, note.weights, strict=True)
    told = ", ".join(
        f"{printable(name)} {loss_text(loss)} over {count_text(int(n), 'prediction')}" for name, loss, n in found
    )
    return (
        f"the loss of version {note.version} is disputed (held-out rows {note.start:,} to {note.stop - 1:,}: {told}): "
        "the controller measures it"
    )


def _filled_in(note: notes.Note, node: str) -> str:
    fields = {
        key: printable(value) if isinstance(value, str) else value for key, value in notes.detail_of(note).items()
    }
    return note.sentence.format(node=printable(node) or "?", **fields)


_TOLD: dict[type[notes.Note], Callable[[Any, str], str]] = {
    **{note: _filled_in for note in notes.Note.__subclasses__() if note.sentence},
    notes.HostPaused: lambda note, _: printable(note.why),
    notes.Evaluated: _evaluated,
    notes.Disputed: _disputed,
    notes.Measured: _measured,
    notes.LeftOver: lambda note, _: (
        note.contributions and f"{count_text(note.contributions, 'contribution')} left over"
    ),
    notes.RunFile: lambda note, _: note.changed and f"the run file changed: {printable(note.changed)}",
    notes.HeldOff: lambda note, node: (
        f"{printable(node)} gets no tasks for {duration_text(note.seconds)}: {printable(note.reason)}"
    ),
}
"""The sentence for each kind of note, from the note and its node; other notes have none."""

Chronicle.kinds = (NodeChanged, *_TOLD)


def plain(text: str, longest: int) -> str:
    """Return `printable` text in ASCII, for columns."""
    return printable(text.encode("ascii", "replace").decode(), longest)


ROUTINE = tuple(notes.kind_of(note) for note in (notes.Evaluated, notes.Measured, notes.BufferSize))
"""The kinds of happenings that recur in each run."""


def of_note(happenings: Iterable[Happening]) -> list[Happening]:
    """Return the happenings without the routine ones."""
    return [happening for happening in happenings if happening.kind not in ROUTINE]
