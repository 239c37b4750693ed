"""Warnings that the controller's notes give as they are noted."""

from __future__ import annotations

from barnraise.core.text import LONGEST_NAME, printable
from barnraise.ledger import notes
from barnraise.ledger.decisions import Noted
from barnraise.ledger.notes import detail_of

_WARNINGS: dict[type[notes.Note], str] = {
    notes.CheckpointFailed: "checkpoint failed: {reason}",
    notes.Voided: "contribution {assignment} of {node} is void, its rows are done again: {reason}",
    notes.VersionRefused: "version {version} is made without its contributions: {reason}",
    notes.StandbyLost: "standby {name} is gone: {reason}",
    notes.DurabilityLowered: "contributions are acknowledged without a standby: controller.durability is standby, "
    "but none has followed for {seconds:g} s (controller.standby_patience). Contributions that the controller's disk "
    "loses now are lost: start a standby (barnraise invite RUN_DIR --standby)",
    notes.DurabilityRestored: "standby {name} follows: acknowledgements wait for it again",
}


class Warnings:
    """The warnings of one process, which remembers failed checkpoints, to report the next one that is written."""

    def __init__(self) -> None:
        self._failing = 0

    def of(self, noted: Noted) -> str:
        """Return the warning; empty for a note without one."""
        if isinstance(noted.note, notes.Checkpointed) and self._failing:
            failed, self._failing = self._failing, 0
            return f"checkpoint of version {noted.note.version} is written, after {failed} that failed"
        self._failing += isinstance(noted.note, notes.CheckpointFailed)
        return warning_of(noted)


def warning_of(noted: Noted) -> str:
    """Return the warning; empty for a note without one."""
    words = _WARNINGS.get(type(noted.note))
    if not words:
        return ""
    said = {
        name: printable(value) if isinstance(value, str) else value for name, value in detail_of(noted.note).items()
    }
    return words.format(**said | {"node": printable(noted.node, LONGEST_NAME)})
