"""Notes that come again and again, as figures of how a run works, and are no news."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from barnraise.ledger.note import Note


class Matched(Note, frozen=True, gc=False):
    """How the standing market of nodes and tasks is, and what moved in it since its controller started.

    `moves` are tasks that got a place, another one or none, `rematches` those of them that went from one node to
    another. `stability` is the share of matched pairs of which neither end could do better with another that wants it,
    by time alone; `nearly` the same where a gain of a tenth does not count; `priced` the same at the market's prices
    (-1 in older ledgers); `blocking` the share of acceptable pairs that would rather have each other; `regret` by how
    much dearer the pairs are than the least possible, as a share.
    """

    figures: ClassVar[bool] = True

    nodes: int
    tasks: int
    events: int
    moves: int
    stability: float
    nearly: float
    blocking: float
    regret: float = 0.0
    rematches: int = 0
    priced: float = -1.0


class NoMarket(Note, frozen=True, gc=False):
    """No market of nodes and tasks stands, for a reason."""

    figures: ClassVar[bool] = True

    reason: str


class Employed(Note, frozen=True, gc=False):
    """What became of the nodes' time, and of the offers, by now: `idle` is the share of the time in which nodes that
    were ready had no task; `conflicts` that of the tasks which their nodes gave back or lost, or whose results were
    refused."""

    figures: ClassVar[bool] = True

    idle: float
    conflicts: float
    offers: int
    refused: int


class Sampled(Note, frozen=True, gc=False):
    """A node as it is, once a minute at most: what the controller has seen of it (tokens a second while it computes, by
    how much its tasks scatter, bytes a second up, the share of the time since it came first in which it was here; 0
    where nothing is known), and what it `said` (`core.types.Telemetry`, by its fields)."""

    figures: ClassVar[bool] = True

    tokens_per_second: float
    spread: float
    up: float
    availability: float
    said: dict[str, float] = msgspec.field(default_factory=dict)
