"""How long a worker that leaves waits for a controller that does not answer."""

from __future__ import annotations

from barnraise.core.units import count_text

PATIENCE = 10.0
"""Seconds of silence after which it goes without having handed in what it has."""

PROBE = 2.0
"""Seconds between its heartbeats at most: the answers tell a slow upload from a controller that is gone."""


def gives_up_at(asked_at: float, last_heard: float) -> float:
    """When a worker that was asked to leave at `asked_at` waits no more."""
    return max(asked_at, last_heard) + PATIENCE


def farewell(reason: str, num_lost: int) -> str:
    """Why a worker that waited in vain has gone."""
    lost = f", and the work of {count_text(num_lost, 'task')} could not be handed in" if num_lost else ""
    return f"{reason}: the controller does not answer{lost}"
