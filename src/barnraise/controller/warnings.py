"""What of the controller's notes is said aloud, as it is noted."""

from __future__ import annotations

from barnraise.ledger import notes
from barnraise.ledger.decisions import Noted

_WARNINGS: dict[type[notes.Note], str] = {
    notes.CheckpointFailed: "checkpoint failed: {note.reason}",
    notes.Voided: "contribution {note.assignment} of {node} is void, its rows are done again: {note.reason}",
    notes.VersionRefused: "version {note.version} is made without its contributions: {note.reason}",
    notes.StandbyLost: "standby {note.name} is gone: {note.reason}",
}


def warning_of(noted: Noted) -> str:
    """The warning; empty for a note without one."""
    words = _WARNINGS.get(type(noted.note))
    return words.format(node=noted.node, note=noted.note) if words else ""
