"""A worker's contact with its controller: greeting and answer, silence, and the link's measurements."""

from __future__ import annotations

import math

from barnraise.core.sites import Releases
from barnraise.core.types import LinkReport
from barnraise.wire.messages import Message, Pulse, Term, Welcome
from barnraise.worker import measure
from barnraise.worker.actions import Send
from barnraise.worker.withholding import effective, withheld

HELLO_INTERVAL = 1.0
"""Seconds between attempts to reach a silent controller."""


class Contact:
    """The state of the connection: `greeting` is the last Hello's number, `greeted` whether it was answered.

    `welcome` is the newest.
    """

    def __init__(self, session: int) -> None:
        self.session = session
        self.welcome: Welcome | None = None
        self.term = Term()  # the highest of all welcomes
        self.greeting, self.greeted = 0, False
        self.heartbeat, self.lease = 1.0, 10.0
        self.link = LinkReport()
        self.most: Releases | None = None  # its owner's limits, where it has rows of its own
        self.last_sent = self.last_heard = -math.inf

    def silent(self, now: float) -> bool:
        """Return whether a (further) greeting is due."""
        return not self.greeted or now - self.last_heard > self.lease

    def send(self, message: Message, now: float) -> Send:
        self.last_sent = now
        return Send(withheld(message, effective(self.most, self.welcome)))

    def greet(self) -> int:
        """Return the number of the next greeting.

        An unanswered one is repeated unchanged, or on a slow link every answer would come too late.
        """
        if self.greeted or not self.greeting:
            self.greeting, self.greeted = self.greeting + 1, False
        return self.greeting

    def begin_anew(self) -> None:
        """Mark the session as lost, so that the next Tick greets."""
        if self.greeted:
            self.greeting, self.greeted = self.greeting + 1, False

    def welcomed(self, message: Welcome) -> bool:
        """Record the answer to the last greeting; False for any other.

        That is one to an earlier greeting, or from a superseded controller, which learns that from the next greeting,
        and ends.
        """
        if message.greeting != self.greeting or self.greeted or message.term.rank < self.term.rank:
            return False
        self.welcome, self.term, self.greeted = message, message.term, True
        self.heartbeat, self.lease = message.heartbeat, message.lease
        return True

    def pulse(self, message: Pulse, now: float) -> None:
        self.heartbeat, self.lease = message.heartbeat, message.lease
        self.link = measure.round_trip(self.link, now - message.sent)
