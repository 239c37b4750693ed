"""The queue of the controller's machine, and its limits."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from barnraise.controller.state.events import Event
from barnraise.wire.messages import Offer

MOST_AT_ONCE = 1024
"""Events that are handled between two runs of the event loop."""

MOST_WAITING = 8192
"""Events that wait; nothing more is read meanwhile, which slows the senders down."""

TURNS_BEHIND = MOST_WAITING // MOST_AT_ONCE
"""Rounds after which all events are handled that waited at their beginning: silence is judged then, at the latest."""


class Brought(NamedTuple):
    """An offer and its attached payload; the machine sees the offer."""

    node: str
    message: Offer
    payload: memoryview


class Awaited(NamedTuple):
    """An event whose decisions a caller awaits; the machine sees the event."""

    event: Event
    settled: asyncio.Future[None]


Waiting = Event | Brought | Awaited
