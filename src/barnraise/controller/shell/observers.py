"""Observers, who ask for the run's status with an observer's invite, and get it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from barnraise.controller.shell.enrolment import UnansweredError, refusal_of
from barnraise.controller.shell.role_handlers import HandlerContext, RoleHandler
from barnraise.core.errors import InviteError, StorageError
from barnraise.transport.base import Peer
from barnraise.wire.frames import Buffer
from barnraise.wire.messages import Message, Stop
from barnraise.wire.observing import Observe, Observed

FRESH = 1.0
"""Seconds for which an answer is good for all observers."""

MOST_SHARE = 0.05
"""Share of the time that may be spent on reading the status."""

MOST_WAITING = 64
"""Observers that wait for the same answer; more ask again."""


class Observers(RoleHandler):
    """Answers observers, if the shell has a function that reads the status."""

    def __init__(self, context: HandlerContext) -> None:
        super().__init__(context)
        self._run, self._transmit = context.machine.settings.run.name, context.transmit
        self._waiting: dict[str, Peer] = {}  # by key
        self._told, self._good_until = b"", 0.0
        self._reading: asyncio.Task[None] | None = None

    def greet(self, peer: Peer, message: Observe) -> None:
        """Answer a machine that asks for the status, now or once the ledger is read."""
        read_status = self.context.read_status
        try:
            self.context.enrolment.let_look(message, peer.key, self.context.address(peer))
        except UnansweredError:
            return
        except (InviteError, StorageError) as error:
            self._transmit(peer, refusal_of(error), None)
            return
        if len(self._waiting) >= MOST_WAITING:
            return  # it asks again
        if read_status is None:
            self._transmit(peer, Stop("this run admits no observers"), None)
        elif time.monotonic() < self._good_until:
            self._transmit(peer, Observed(self._run), self._told)
        else:
            self._waiting[peer.key] = peer
            if self._reading is None or self._reading.done():
                self._reading = asyncio.ensure_future(self._read(read_status))

    async def _read(self, read_status: Callable[[], bytes]) -> None:
        began = time.monotonic()
        try:
            self._told = await asyncio.to_thread(read_status)
        except Exception as error:  # the run continues after any error of its status
            self._tell(Stop(f"the status of the run cannot be read now: {type(error).__name__}"), None)
            return
        now = time.monotonic()
        self._good_until = now + max(FRESH, (now - began) / MOST_SHARE)
        self._tell(Observed(self._run), self._told)

    def _tell(self, message: Message, raw: Buffer | None) -> None:
        waiting, self._waiting = self._waiting, {}
        for peer in waiting.values():
            self._transmit(peer, message, raw)
