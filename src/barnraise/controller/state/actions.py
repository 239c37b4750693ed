"""The actions of the controller's state machine.

The shell carries actions out in order, and none before the decisions journaled ahead of it are durable.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from barnraise.core.types import Batches, Contribution, ParameterRange
from barnraise.ledger.decisions import Decision
from barnraise.wire.messages import Message


class Action(msgspec.Struct, frozen=True, gc=False):
    """Base class of all actions of the controller."""


class Journal(Action, frozen=True, gc=False):
    """Make the decision durable; for an accepted contribution, its payload first."""

    decision: Decision


class Send(Action, frozen=True, gc=False):
    node: str
    message: Message


class Receive(Action, frozen=True, gc=False):
    """Receive the payload that `node` offered: ask for missing bytes; answer with `Arrived` as they come."""

    node: str
    contribution: Contribution


class Inspect(Action, frozen=True, gc=False):
    """Decode the payload and measure it; answer with `Inspected`, and a sketch where there is a seed for one."""

    epoch: int
    node: str
    contribution: Contribution
    seed: int = 0


class Discard(Action, frozen=True, gc=False):
    """Drop the payload that `node` sent for `assignment`."""

    node: str
    assignment: int


class Held(NamedTuple):
    """A contribution in a slot.

    Its weight there, its payload's codec, its staleness at arrival, its node's trust then (`trust.standing`), and the
    factor of its update.
    """

    assignment: int
    weight: float
    codec: int
    staleness: int = 0
    trust: float = 1.0
    scale: float = 1.0


class Slot(msgspec.Struct, frozen=True, gc=False):
    """One node's contributions in a buffer, and in the version that it becomes, for one range of the parameters."""

    node: str
    parameters: ParameterRange
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


class Gate(Action, frozen=True, gc=False):
    """Find up to `most` nodes without whose slots `version` has a lower loss; answer with `Gated`.

    The loss is that of `rows` training rows, which follow from `seed`. All nodes are found where the version is harmful
    even so. The version moves by `rate` times the rule's aggregate of the slots.
    """

    epoch: int
    version: int
    slots: tuple[Slot, ...]
    rate: float
    most: int
    rows: int
    seed: int


class Aggregate(Action, frozen=True, gc=False):
    """Make `version` out of the slots, in this order; answer with `Aggregated`."""

    epoch: int
    version: int
    slots: tuple[Slot, ...]
    rate: float  # factor of the outer optimizer's rate
    scales: tuple[float, ...] = ()  # factors of the ranges' aggregates, in order


class Evaluate(Action, frozen=True, gc=False):
    """Measure `version` on held-out data; answer with `Evaluated`."""

    epoch: int
    version: int


SCORED_ROWS = 32
"""Rows of its own, and others, that a contribution is scored by, at most."""


class Score(Action, frozen=True, gc=False):
    """Measure what an accepted contribution does for the loss of its own rows, and of others; answer with `Scored`.

    Its own rows are those of its `steps` of the batches. The choice of rows follows from `seed`.
    """

    epoch: int
    node: str
    contribution: Contribution
    batches: Batches
    steps: int
    seed: int


class Checkpoint(Action, frozen=True, gc=False):
    """Make `version` durable, with the outer state and this machine's; answer with `Checkpointed`."""

    epoch: int
    version: int


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
