"""The actions of the controller's state machine.

The shell carries actions out in order, and none before the decisions journaled ahead of it are durable.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from barnraise.core.types import PayloadResult, Ranges
from barnraise.ledger.decisions import Decision
from barnraise.wire.messages import Message


class Action(msgspec.Struct, frozen=True, gc=False):
    """Base class of all actions of the controller."""


class Journal(Action, frozen=True, gc=False):
    """Make the decision durable; for an accepted result with a payload, that first."""

    decision: Decision


class Send(Action, frozen=True, gc=False):
    node: str
    message: Message


class Receive(Action, frozen=True, gc=False):
    """Receive the payload that `node` offered: ask for missing bytes; answer with `Arrived` as they come."""

    node: str
    result: PayloadResult


class Discard(Action, frozen=True, gc=False):
    """Drop the payload that `node` sent for `assignment`."""

    node: str
    assignment: int


class Held(NamedTuple):
    """A contribution in a slot.

    Its weight there, its payload's codec, its staleness at arrival, its node's trust then (`trust.reputation`), and the
    factor of its update.
    """

    assignment: int
    weight: float
    codec: int
    staleness: int = 0
    trust: float = 1.0
    scale: float = 1.0


class Slot(msgspec.Struct, frozen=True, gc=False):
    """One node's contributions in a buffer, and in the version that it becomes, for the same ranges of parameters."""

    node: str
    parameters: Ranges
    contributions: tuple[Held, ...] = ()
    fresh_weight: float = 0.0  # their weight if none were stale; 0: none is
    excluded: bool = False  # whether the version is made without them (`controller.versions.loss_gate`)

    @property
    def weight(self) -> float:
        return sum(held.weight for held in self.contributions)

    @property
    def trust(self) -> float:
        """Return the trust of its node when the newest of them came."""
        return self.contributions[-1].trust if self.contributions else 1.0

    @property
    def freshness(self) -> float:
        """Return the share of the weights that staleness leaves."""
        return self.weight / self.fresh_weight if self.fresh_weight else 1.0

    def plus(self, held: Held, fresh: float) -> Slot:
        """Return the slot with one more, which would weigh `fresh` if it were not stale."""
        return msgspec.structs.replace(
            self, contributions=(*self.contributions, held), fresh_weight=self.fresh_weight + fresh
        )

    def without(self, assignment: int, tokens: int, trains: bool) -> Slot:
        """Return the slot without that assignment's contribution, if it is in it.

        Its `tokens` count if its task `trains`.
        """
        left = tuple(held for held in self.contributions if held.assignment != assignment)
        found = (held for held in self.contributions if held.assignment == assignment)
        gone = sum(held.trust * tokens if trains else held.weight for held in found)
        return msgspec.structs.replace(self, contributions=left, fresh_weight=self.fresh_weight - gone)


class Release(Action, frozen=True, gc=False):
    """Release these blobs, which no task names any more (deltas too old to be sent)."""

    digests: tuple[str, ...]


class Finish(Action, frozen=True, gc=False):
    """End this process, which has nothing left to do.

    The run is over and everything is durable; or it stays open, to be resumed, because it was `interrupted` or has
    `failed`.
    """

    reason: str
    failed: bool = False
    interrupted: bool = False
