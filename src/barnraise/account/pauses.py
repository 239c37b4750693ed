"""The reasons why a run is paused: that of the aggregation rule, for want of nodes, and that of the host."""

from __future__ import annotations

import msgspec

from barnraise.core.text import printable
from barnraise.ledger import Noted, notes

KINDS: tuple[type[notes.Note], ...] = (
    notes.Paused,
    notes.Continued,
    notes.HostPaused,
    notes.HostContinued,
    notes.Stopping,
)
"""The notes that begin or end a pause."""


class Pauses(msgspec.Struct, frozen=True):
    """The reasons of both, "" where there is none. The host continued the run last at the time `continued`.

    >>> Pauses(rule="1 live node, but the aggregation rule needs 2", host="the host paused the run").told
    'paused: the host paused the run; 1 live node, but the aggregation rule needs 2'
    """

    rule: str = ""
    host: str = ""
    continued: float = 0.0

    @property
    def told(self) -> str:
        """Return the sentence for readers; empty where the run is not paused."""
        why = "; ".join(printable(reason) for reason in (self.host, self.rule) if reason)
        return f"paused: {why}" if why else ""

    def after(self, noted: Noted) -> Pauses:
        """Return the reasons after a note of one of KINDS. A request to stop ends the host's pause."""
        note = noted.note
        if isinstance(note, notes.Paused | notes.Continued):
            return Pauses(note.reason, self.host, self.continued)
        host = note.why if isinstance(note, notes.HostPaused) else ""
        return Pauses(self.rule, host, noted.time if isinstance(note, notes.HostContinued) else self.continued)
