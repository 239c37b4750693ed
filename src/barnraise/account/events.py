"""The rows of a ledger as events of named kinds, from a moment on, and further ones as they are committed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from barnraise.account.chronicle import ROUTINE, Chronicle, Happening
from barnraise.account.story import sentence
from barnraise.core.errors import UnknownNameError
from barnraise.core.text import LONGEST_SENTENCE, printable, shortened
from barnraise.core.units import bytes_text, count_text
from barnraise.ledger import (
    Assigned,
    Change,
    Decision,
    Judged,
    LedgerView,
    NodeChanged,
    Noted,
    VersionClosed,
    VersionMade,
    notes,
)
from barnraise.ledger.note import Note

REFUSED = "refused"
MEMBERSHIP = ("enrolled", "rekeyed", "joined", "back", "restarted", "left", "killed", "revoked", "ended")
DECISIONS: Mapping[str, type[Decision]] = {
    **dict.fromkeys(MEMBERSHIP, NodeChanged),
    "assigned": Assigned,
    **dict.fromkeys(("accepted", REFUSED, "discarded"), Judged),
    "closed": VersionClosed,
    "made": VersionMade,
}
"""Kinds of events that are no notes: changes of nodes, verdicts, versions."""

NOTES: Mapping[str, type[Note]] = {
    notes.kind_of(note): note for note in Note.__subclasses__() if note is not notes.Unknown
}

KINDS = (*DECISIONS, *sorted(NOTES))
"""The names of all kinds."""

NEWS = frozenset(
    {
        *MEMBERSHIP[1:-1],
        REFUSED,
        *(notes.kind_of(kind) for kind in Chronicle.kinds if issubclass(kind, Note)),
    }
) - {*ROUTINE}  # fmt: skip
"""The kinds that a reader is shown who asks for none: what recurs in every run is not among them."""

ALL = "all"


class Event(NamedTuple):
    """One row of the ledger as an event, at `time` on the run's clock; `node` is "" where it is of none."""

    row: int
    time: float
    kind: str
    node: str
    text: str
    decision: Decision


def kinds_of(names: str) -> frozenset[str]:
    """Return the kinds that a text names, with commas between them; NEWS for "". Raises UnknownNameError.

    >>> sorted(kinds_of("refused, left"))
    ['left', 'refused']
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in KINDS and name != ALL:
            raise UnknownNameError("kind of event", name, (ALL, *KINDS))
    return frozenset(KINDS) if ALL in wanted else frozenset(wanted) or NEWS


class EventFeed:
    """Yields the events of some kinds, of one `node` or of all, from the time `since` of the run's clock on.

    It has a view of the ledger to itself.
    """

    def __init__(self, view: LedgerView, kinds: Collection[str], *, node: str = "", since: float = 0.0) -> None:
        self._kinds, self._node, self._since = frozenset(kinds), node, since
        self._chronicle = Chronicle()
        first = view.first_row(since) if since > 0.0 else 1
        for _, changed in view.find(NodeChanged, "id < ?", first):  # whether a node joins or is back depends on these
            self._chronicle.tell(changed)
        rows = {DECISIONS[kind] for kind in self._kinds if kind in DECISIONS} | {NodeChanged}
        self._cursor = view.cursor({*rows, *(NOTES[kind] for kind in self._kinds if kind in NOTES)}, first - 1)

    def new(self) -> Iterator[Event]:
        """Yield the events since the last call. Raises StorageError, CorruptionError."""
        for batch in self._cursor.new():
            for row, decision in batch.rows:
                told = self._told(decision)
                wanted = told.kind in self._kinds and self._node in ("", told.node) and told.time >= self._since
                if wanted and told.text:
                    yield Event(row, told.time, told.kind, told.node, told.text, decision)

    def _told(self, decision: Decision) -> Happening:
        told = self._chronicle.tell(decision)
        if told is not None:
            return told
        kind, node, text = _routine(decision)
        return Happening(decision.time, kind, node, text)


def _routine(decision: Decision) -> tuple[str, str, str]:
    """Return kind, node and text of a row that the chronicle does not tell."""
    if isinstance(decision, NodeChanged):
        return str(decision.change), decision.node, sentence(decision) if decision.change != Change.JOINED else ""
    if isinstance(decision, Assigned):
        return "assigned", decision.node, sentence(decision)
    if isinstance(decision, Judged):
        return decision.verdict, decision.node, sentence(decision)
    if isinstance(decision, VersionClosed):
        of = f"{count_text(len(decision.contributions), 'contribution')} of {count_text(decision.num_nodes, 'node')}"
        return "closed", "", f"version {decision.version} is made of {of}: {printable(decision.reason)}"
    if isinstance(decision, VersionMade):
        return "made", "", f"version {decision.version} is made, {bytes_text(decision.delta_bytes)} to publish"
    assert isinstance(decision, Noted)
    return decision.kind, decision.node, sentence(decision) or _fields(decision.note)


def _fields(note: Note) -> str:
    """Return a note without a sentence as its fields."""
    told = (f"{name} {printable(str(value))}" for name, value in notes.detail_of(note).items())
    return shortened(f"{printable(note.kind).replace('_', ' ')}: {', '.join(told)}", LONGEST_SENTENCE)
