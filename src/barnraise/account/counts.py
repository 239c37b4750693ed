"""How often things happened in a run that an alert may be about: departures, failures, verdicts, lost frames."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from barnraise.account.reducer import Kinds, Reducer
from barnraise.ledger import Change, LedgerView, NodeChanged, Noted, notes

COUNTED: tuple[type[notes.Note], ...] = (
    notes.CheckpointFailed,
    notes.Convicted,
    notes.Copied,
    notes.Discredited,
    notes.Disputed,
    notes.DurabilityLowered,
    notes.Evaluated,
    notes.HeldOff,
    notes.HostContinued,
    notes.HostPaused,
    notes.MetricFailed,
    notes.Offended,
    notes.Paused,
    notes.Released,
    notes.Resumed,
    notes.StandbyLost,
    notes.Unaudited,
    notes.Voided,
)
"""The notes that are counted."""


class EventCounts(Reducer):
    """EventCounts changes of nodes by kind, notes of the kinds in COUNTED, and malformed frames."""

    kinds: ClassVar[Kinds] = (NodeChanged, *COUNTED, notes.FrameDropped)

    changes: dict[Change, int] = msgspec.field(default_factory=dict)
    events: dict[str, int] = msgspec.field(default_factory=dict)
    frames: int = 0

    def add(self, row_id: int, decision: object, view: LedgerView) -> None:
        if isinstance(decision, NodeChanged):
            self.changes[decision.change] = self.changes.get(decision.change, 0) + 1
        elif isinstance(decision, Noted) and isinstance(decision.note, notes.FrameDropped):
            self.frames += decision.note.count
        elif isinstance(decision, Noted):
            self.events[decision.kind] = self.events.get(decision.kind, 0) + 1
