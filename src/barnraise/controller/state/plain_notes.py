"""The effect of notes that set single facts of the state: `fold` calls these functions."""

from __future__ import annotations

from barnraise.controller.state.state import State
from barnraise.ledger import notes
from barnraise.ledger.decisions import Noted
from barnraise.privacy.spending import Spending


def measured(state: State, d: Noted, note: notes.Measured) -> None:
    """Keep the newest version that the run's metrics measured."""
    state.record.measured, state.record.measured_tokens = note.version, note.tokens


def disputed(state: State, d: Noted, note: notes.Disputed) -> None:
    """Keep the newest version about whose loss owners disagree."""
    state.record.disputed = note.version


def checkpointed(state: State, d: Noted, note: notes.Checkpointed) -> None:
    """Keep the newest checkpoint."""
    state.record.checkpoint, state.record.checkpoint_time = note.version, d.time


def traffic(state: State, d: Noted, note: notes.Traffic) -> None:
    """Keep the bytes so far."""
    state.totals.bytes_up, state.totals.bytes_down = note.up, note.down


def privacy_budget(state: State, d: Noted, note: notes.PrivacyBudget) -> None:
    """Begin to count what is spent of a budget of differential privacy."""
    if state.progress.spending is None:
        state.progress.spending = Spending(note.unit)


def privacy_spent(state: State, d: Noted, note: notes.PrivacySpent) -> None:
    """Keep the count that was noted last."""
    if state.progress.spending is not None:
        state.progress.spending.told = note.steps


def buffer_size(state: State, d: Noted, note: notes.BufferSize) -> None:
    """Keep the number K of nodes."""
    state.buffer.size = note.nodes


def paused(state: State, d: Noted, note: notes.Paused | notes.Continued) -> None:
    """Keep why the aggregation rule pauses work, or that it does not."""
    state.progress.paused = note.reason


def host_paused(state: State, d: Noted, note: notes.HostPaused) -> None:
    """Keep why the host paused the run."""
    state.progress.host_paused = note.why


def host_continued(state: State, d: Noted, note: notes.HostContinued) -> None:
    """End the host's pause."""
    state.progress.host_paused, state.progress.continued = "", d.time


def stopping(state: State, d: Noted, note: notes.Stopping) -> None:
    """Keep why the run ends, which ends the host's pause."""
    state.progress.stopping, state.progress.host_paused = note.reason, ""


def finished(state: State, d: Noted, note: notes.Finished) -> None:
    """Keep that the run is over, and why."""
    state.progress.finished = note.reason
