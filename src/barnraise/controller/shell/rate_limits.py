"""Rate limits of a node's messages: a table, far above the needs of honest machines.

Excess messages are not handled. A node that sends still more is excluded for a while, with its connections: reading
discarded messages costs others, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from barnraise.core.token_bucket import TokenBucket
from barnraise.trust import roles
from barnraise.wire.messages import (
    Enrol,
    Fetch,
    Hello,
    Leave,
    Message,
    PayloadChunk,
)


class RateLimit(NamedTuple):
    """A rate limit: a burst at once, and a rate a second in the long run."""

    burst: float
    a_second: float


USUAL = RateLimit(400, 100)
"""The rate of messages that RATES does not list: a task of 10 ms is mostly messages."""

RATES: Mapping[type[Message], RateLimit] = {
    Enrol: RateLimit(20, 1),
    Hello: RateLimit(40, 4),  # one a connection, and those that are asked for once a second
    Leave: RateLimit(10, 1),
    PayloadChunk: RateLimit(8000, 4000),  # each of 256 kB: 1 GB a second
    Fetch: RateLimit(8000, 4000),
}
EXCESS = RateLimit(2000, 20)
"""Messages of a node beyond those, after which it is excluded."""

SHUT_OUT = 30.0
"""Seconds of the exclusion."""


class RateLimits:
    """Counts what nodes say.

    >>> from barnraise.wire.messages import Leave
    >>> rates = RateLimits()
    >>> said = [rates.excess("ann", Leave(), 0.0) for _ in range(11)]
    >>> said[9], said[10], rates.excess("bob", Leave(), 0.0), rates.excess("ann", Leave(), 1.0)
    ('', 'more than 1 Leave a second', '', '')
    """

    def __init__(self) -> None:
        self._said = {kind: TokenBucket(*RATES.get(kind, USUAL)) for kind in roles.said_by(roles.of_nodes())}
        self._excess = TokenBucket(*EXCESS)

    def excess(self, node: str, message: Message, now: float) -> str:
        """Return why a message of `node` is ignored; empty when it is not."""
        if self._said[type(message)].take(node, now):
            return ""
        return f"more than {RATES.get(type(message), USUAL).a_second:g} {type(message).__name__} a second"

    def floods(self, node: str, now: float) -> bool:
        """Count an ignored message of the node, and return whether it is to be excluded for that."""
        return not self._excess.take(node, now)
