"""Recurring notes with figures of how a run works, which are not shown as news."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from barnraise.ledger.note import Note


class Matched(Note, frozen=True, gc=False):
    """Figures of the standing market of nodes and tasks, and its moves since its controller started.

    `moves` are tasks that got a place, another one or none, `rematches` those of them that went from one node to
    another. `stability` is the share of matched pairs neither end of which is in a blocking pair, by time alone;
    `nearly` the same where a gain of a tenth does not count; `priced` the same at the market's prices (-1 in older
    ledgers); `blocking` the share of acceptable pairs that both prefer each other; `regret` the relative excess over
    the least cost.
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
    """A note that no market of nodes and tasks stands, with its reason."""

    figures: ClassVar[bool] = True

    reason: str


class Employed(Note, frozen=True, gc=False):
    """Use of the nodes' time, and of offers, by now.

    `idle` is the share of the time in which ready nodes had no task; `conflicts` that of the tasks which their nodes
    gave back or lost, or whose results were refused.
    """

    figures: ClassVar[bool] = True

    idle: float
    conflicts: float
    offers: int
    refused: int


class Sampled(Note, frozen=True, gc=False):
    """A sample of a node, once a minute at most.

    It has the controller's observations (tokens a second while it computes, the deviation of its tasks, bytes a second
    up, the share of the time since it came first in which it was present; 0 where nothing is known), and the node's own
    report `said` (`core.types.Telemetry`, by its fields).
    """

    figures: ClassVar[bool] = True

    tokens_per_second: float
    spread: float
    up: float
    availability: float
    said: dict[str, float] = msgspec.field(default_factory=dict)
