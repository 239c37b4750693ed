"""Time limits for a worker that was asked to leave."""

from __future__ import annotations

from barnraise.core.units import count_text

PATIENCE = 10.0
"""Seconds of silence after which it leaves without having submitted its results."""

PROBE = 2.0
"""Seconds between its heartbeats at most: the answers tell a slow upload from a lost controller."""

GRACE = 50.0
"""Seconds after which it leaves in any case."""

LEAVES_WITHIN = 60.0
"""Seconds within which the process of a worker that was asked to leave has ended.

The rest is for closing the connection, after which the process is ended by force.
"""


def gives_up_at(asked_at: float, last_heard: float) -> float:
    """Return when a worker that was asked to leave at `asked_at` stops waiting."""
    return min(max(asked_at, last_heard) + PATIENCE, asked_at + GRACE)


def farewell(reason: str, num_lost: int, *, silent: bool) -> str:
    """Return the reason of a worker that left without an answer; `silent`: the controller did not answer at all."""
    lost = f", and the work of {count_text(num_lost, 'task')} could not be submitted" if num_lost else ""
    why = "the controller does not answer" if silent else f"it was not done after {GRACE:g} s"
    return f"{reason}: {why}{lost}"
