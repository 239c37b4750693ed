"""A worker's standing with its controller: greeted and answered, or silent for how long; and what the link is like."""

from __future__ import annotations

import math

from barnraise.core.types import LinkReport
from barnraise.wire.messages import Message, Pulse, Term, Welcome
from barnraise.worker import measure
from barnraise.worker.actions import Send

HELLO_INTERVAL = 1.0
"""Seconds between attempts to reach a silent controller."""


class Contact:
    """`greeting` is the last Hello's number, `greeted` whether that one was answered; `welcome` is the newest."""

    def __init__(self, session: int) -> None:
        self.session = session
        self.welcome: Welcome | None = None
        self.term = Term()  # the highest that a welcome was of
        self.greeting, self.greeted = 0, False
        self.heartbeat, self.lease = 1.0, 10.0
        self.link = LinkReport()
        self.last_sent = self.last_heard = -math.inf

    def silent(self, now: float) -> bool:
        """Whether to greet (again)."""
        return not self.greeted or now - self.last_heard > self.lease

    def send(self, message: Message, now: float) -> Send:
        self.last_sent = now
        return Send(message)

    def greet(self) -> int:
        """The number of the next greeting. One that has no answer yet is repeated as it was, or on a slow link every
        answer would come too late."""
        if self.greeted or not self.greeting:
            self.greeting, self.greeted = self.greeting + 1, False
        return self.greeting

    def begin_anew(self) -> None:
        """What stands is not so any more: the next Tick greets."""
        if self.greeted:
            self.greeting, self.greeted = self.greeting + 1, False

    def welcomed(self, message: Welcome) -> bool:
        """Take the answer to the last greeting; False for one that answers another, or is of a controller that was
        superseded: it hears so from the next greeting, and ends."""
        if message.greeting != self.greeting or self.greeted or message.term.rank < self.term.rank:
            return False
        self.welcome, self.term, self.greeted = message, message.term, True
        self.heartbeat, self.lease = message.heartbeat, message.lease
        return True

    def pulse(self, message: Pulse, now: float) -> None:
        self.heartbeat, self.lease = message.heartbeat, message.lease
        self.link = measure.round_trip(self.link, now - message.sent)
