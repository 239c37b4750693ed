"""Warnings that the controller's notes give as they are noted."""

from __future__ import annotations

from barnraise.core.text import LONGEST_NAME, printable
from barnraise.ledger import notes
from barnraise.ledger.decisions import Decision, Judged, Noted
from barnraise.ledger.notes import detail_of

_WARNINGS: dict[type[notes.Note], str] = {
    notes.CheckpointFailed: "checkpoint failed: {reason}",
    notes.Voided: "contribution {assignment} of {node} is void, its rows are done again: {reason}",
    notes.VersionRefused: "version {version} is made without its contributions: {reason}",
    notes.GroupLeftOut: "version {version} is made without a group of masked updates: {reason}",
    notes.StandbyLost: "standby {name} is gone: {reason}",
    notes.DurabilityLowered: "contributions are acknowledged without a standby: controller.durability is standby, "
    "but none has followed for {seconds:g} s (controller.standby_patience). Contributions that the controller's disk "
    "loses now are lost: start a standby (barnraise invite RUN_DIR --standby)",
    notes.DurabilityRestored: "standby {name} follows: acknowledgements wait for it again",
}


MOST_RAISED = 20
"""Different failures of a problem's code that are told, at most."""

WAITS_AFTER = 10
"""Tasks in a row that a problem's code fails in, after which the run is said to wait."""


class Warnings:
    """The warnings of one process, which remembers failed checkpoints, to report the next one that is written.

    A failure of a problem's code is told once, and again where no task is done any more.
    """

    def __init__(self) -> None:
        self._failing = self._in_vain = 0  # checkpoints that failed, and tasks that a problem failed in, in a row
        self._raised = set[str]()  # reasons that were told

    def of(self, decision: Decision) -> str:
        """Return the warning; empty for a decision without one."""
        if isinstance(decision, Judged) and decision.verdict == "accepted":
            self._in_vain = 0
        return self._of_note(decision) if isinstance(decision, Noted) else ""

    def _of_note(self, noted: Noted) -> str:
        if isinstance(noted.note, notes.Checkpointed) and self._failing:
            failed, self._failing = self._failing, 0
            return f"checkpoint of version {noted.note.version} is written, after {failed} that failed"
        if isinstance(noted.note, notes.Released) and noted.note.reason.startswith(notes.RAISED):
            reason = printable(noted.note.reason.removeprefix(notes.DECLINED))
            self._in_vain += 1
            if self._in_vain == WAITS_AFTER:
                return (
                    f"the run waits: its workers gave the last {WAITS_AFTER} tasks back, and did none between them "
                    f"({reason}). They try again; if that does not help, stop the run, mend the problem or lower "
                    "training.learning_rate, and start it again"
                )
            if reason in self._raised or len(self._raised) == MOST_RAISED:
                return ""
            self._raised.add(reason)
            node = printable(noted.node, LONGEST_NAME)
            return f"{node} gave a task back: {reason}; others with this reason are on the ledger alone"
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
