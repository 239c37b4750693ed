"""How long a worker that leaves waits for a controller that does not answer."""

from __future__ import annotations

PATIENCE = 10.0
"""Seconds of silence after which it goes without having handed in what it has."""

PROBE = 2.0
"""Seconds between its heartbeats at most: the answers tell a slow upload from a controller that is gone."""


def gives_up_at(asked_at: float, last_heard: float) -> float:
    """When a worker that was asked to leave at `asked_at` waits no more."""
    return max(asked_at, last_heard) + PATIENCE


def farewell(reason: str, num_pending: int) -> str:
    """Why a worker that waited in vain has gone."""
    lost = f", and what it has of {num_pending} finished tasks could not be handed in" if num_pending else ""
    return f"{reason}: the controller does not answer{lost}"
