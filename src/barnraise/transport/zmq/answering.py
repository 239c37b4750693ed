"""The ROUTER's answers to REQ sockets, which ask one question and then wait for exactly one answer.

A question is an empty delimiter and then either nothing (one empty frame: "is there a message for me?") or a message.
An answer is the next message that waits for the asker, on any subject, or one empty frame when there is none:

    [message]               answered with the next message, or with nothing after REPLY_SECONDS
    [message, raw frame]    answered at once
    [message, empty frame]  answered at once, for a message that needs no answer
    [empty frame]           answered as a message is, without being one

So messages keep their order, none is skipped, and an asker that does not return has a bounded mailbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import zmq

from barnraise.transport.base import Peer
from barnraise.transport.budget import Budget
from barnraise.transport.mailbox import Mailbox
from barnraise.wire.frames import Buffer

REPLY_SECONDS = 0.25
"""Seconds that a question waits for an answer before an empty one."""

MAX_ASKERS = 1024
"""Askers that are remembered; the one that was silent for longest makes room for a new one."""


class _Asker:
    """One REQ socket: its waiting messages, and the deadline of its open question."""

    def __init__(self, peer: Peer, budget: Budget) -> None:
        self.peer = peer
        self.mailbox = Mailbox(budget, peer.key)
        self.waiting: asyncio.TimerHandle | None = None


class ReplySockets:
    """All REQ sockets of a listener; `reply` sends one answer."""

    def __init__(self, reply: Callable[[Peer, Sequence[Buffer]], None], budget: Budget) -> None:
        self._reply, self._budget = reply, budget
        self._askers: dict[bytes, _Asker] = {}  # by route, the one that was silent for longest first

    def __contains__(self, peer: Peer) -> bool:
        return peer.route in self._askers

    def question(self, peer: Peer, frames: list[zmq.Frame]) -> None:
        """Record a question (without its delimiter)."""
        asker = self._askers.pop(peer.route, None) or _Asker(peer, self._budget)
        if len(self._askers) >= MAX_ASKERS:
            self.forget(next(iter(self._askers)))
        self._askers[peer.route] = asker
        at_once = len(frames) > 1 or len(asker.mailbox) > 0
        if asker.waiting is not None:
            asker.waiting.cancel()
        seconds = 0.0 if at_once else REPLY_SECONDS
        asker.waiting = asyncio.get_running_loop().call_later(seconds, self._answer, asker)

    def put(self, peer: Peer, frames: Sequence[Buffer]) -> bool:
        """Store a message for an asker, or answer its open question with it; False when its mailbox is full."""
        asker = self._askers[peer.route]
        if not asker.mailbox.put(frames):
            return False
        if asker.waiting is not None:
            self._answer(asker)
        return True

    def _answer(self, asker: _Asker) -> None:
        if asker.waiting is not None:
            asker.waiting.cancel()
            asker.waiting = None
        self._reply(asker.peer, asker.mailbox.take() if len(asker.mailbox) else [b""])

    def forget(self, route: bytes) -> None:
        """Forget the asker of this route, as it has left."""
        asker = self._askers.pop(route, None)
        if asker is not None:
            asker.mailbox.clear()
            if asker.waiting is not None:
                asker.waiting.cancel()

    def close(self) -> None:
        """Forget all askers of the listener."""
        for route in list(self._askers):
            self.forget(route)
