"""How long a worker that was asked to leave stays at most."""

from __future__ import annotations

from barnraise.core.units import count_text

PATIENCE = 10.0
"""Seconds of silence after which it goes without having handed in what it has."""

PROBE = 2.0
"""Seconds between its heartbeats at most: the answers tell a slow upload from a controller that is gone."""

GRACE = 50.0
"""Seconds after which it goes in any case: whatever the controller answers, and whatever its own step takes."""

LEAVES_WITHIN = 60.0
"""Seconds within which the process of a worker that was asked to leave has ended: the rest is for closing the
connection, after which the process is ended by force."""


def gives_up_at(asked_at: float, last_heard: float) -> float:
    """When a worker that was asked to leave at `asked_at` waits no more."""
    return min(max(asked_at, last_heard) + PATIENCE, asked_at + GRACE)


def farewell(reason: str, num_lost: int, *, silent: bool) -> str:
    """Why a worker that waited in vain has gone; `silent` says that the controller did not answer at all."""
    lost = f", and the work of {count_text(num_lost, 'task')} could not be handed in" if num_lost else ""
    why = "the controller does not answer" if silent else f"it was not done after {GRACE:g} s"
    return f"{reason}: {why}{lost}"
