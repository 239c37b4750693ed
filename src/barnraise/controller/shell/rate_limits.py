"""How often a node may say what: a table, far above what honest machines need. What is more is not handled.

Whoever says still more is shut out for a while, connections and all: to read what is thrown away costs others, too.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import NamedTuple

from barnraise.core.token_bucket import TokenBucket
from barnraise.wire.messages import (
    Decline,
    Enrol,
    Fetch,
    FromWorker,
    Heartbeat,
    Hello,
    Leave,
    Message,
    Offer,
    PayloadChunk,
    RequestTask,
    Subscribe,
)


class RateLimit(NamedTuple):
    """So many at once, and so many a second in the long run."""

    burst: float
    a_second: float


RATES: Mapping[type[Message], RateLimit] = {
    Enrol: RateLimit(20, 1),
    Hello: RateLimit(40, 4),  # one a connection, and those that are asked for once a second
    Heartbeat: RateLimit(400, 100),
    RequestTask: RateLimit(400, 100),  # a task of 10 ms is mostly messages
    Subscribe: RateLimit(400, 100),
    Decline: RateLimit(400, 100),
    Offer: RateLimit(400, 100),
    Leave: RateLimit(10, 1),
    PayloadChunk: RateLimit(8000, 4000),  # of 256 kB: 1 GB a second
    Fetch: RateLimit(8000, 4000),
}
EXCESS = RateLimit(2000, 20)
"""Messages of a node beyond those, after which it is shut out."""

SHUT_OUT = 30.0
"""Seconds for which it is."""

assert set(RATES) == set(typing.get_args(FromWorker)), "each kind of message has a rate"


class RateLimits:
    """Counts what nodes say.

    >>> from barnraise.wire.messages import Leave
    >>> rates = RateLimits()
    >>> said = [rates.excess("ann", Leave(), 0.0) for _ in range(11)]
    >>> said[9], said[10], rates.excess("bob", Leave(), 0.0), rates.excess("ann", Leave(), 1.0)
    ('', 'more than 1 Leave a second', '', '')
    """

    def __init__(self) -> None:
        self._said = {kind: TokenBucket(*rate) for kind, rate in RATES.items()}
        self._excess = TokenBucket(*EXCESS)

    def excess(self, node: str, message: Message, now: float) -> str:
        """Why what `node` says is passed over; empty when it is not."""
        if self._said[type(message)].take(node, now):
            return ""
        return f"more than {RATES[type(message)].a_second:g} {type(message).__name__} a second"

    def floods(self, node: str, now: float) -> bool:
        """One more of the node's was passed over: whether it is to be shut out for that."""
        return not self._excess.take(node, now)
