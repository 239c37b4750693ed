"""What waits for the controller's machine, and how much of it may."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from barnraise.controller.state.events import Event
from barnraise.wire.messages import Offer

MOST_AT_ONCE = 1024
"""Events that are handled between two looks at the event loop."""

MOST_WAITING = 8192
"""Events that wait; nothing more is read meanwhile, which slows the senders down."""

TURNS_BEHIND = MOST_WAITING // MOST_AT_ONCE
"""Turns after which all is handled that waited at their beginning: silence is judged then, at the latest."""


class Brought(NamedTuple):
    """An offer and the payload that came along. The machine sees the offer."""

    node: str
    message: Offer
    payload: memoryview


class Awaited(NamedTuple):
    """An event whose decisions somebody waits for. The machine sees the event."""

    event: Event
    settled: asyncio.Future[None]


Waiting = Event | Brought | Awaited
