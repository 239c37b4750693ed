"""The notes of a run's pauses: those of the aggregation rule, for want of nodes, and those of the host."""

from __future__ import annotations

from typing import ClassVar

from barnraise.ledger.note import Note


class Paused(Note, frozen=True, gc=False):
    """Work pauses: fewer nodes live than the aggregation rule needs."""

    sentence: ClassVar[str] = "paused: {reason}"

    reason: str


class Continued(Note, frozen=True, gc=False):
    """Work continues: enough nodes live again."""

    sentence: ClassVar[str] = "work continues"

    reason: str = ""


class HostPaused(Note, frozen=True, gc=False):
    """The host paused the run: no node gets a task until it is continued, or finishes.

    The `reason` is the host's, "" where it gave none.
    """

    reason: str = ""

    @property
    def why(self) -> str:
        """Return the sentence that nodes and readers are given as the reason."""
        return f"the host paused the run: {self.reason}" if self.reason else "the host paused the run"


class HostContinued(Note, frozen=True, gc=False):
    """The host continued the run that it had paused."""

    sentence: ClassVar[str] = "the host continued the run"
