"""What the controller's state machine wants done. The shell carries actions out in order, and none before the
decisions journaled ahead of it are durable."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from barnraise.core.types import Batches, Contribution, ParameterRange
from barnraise.ledger.decisions import Decision
from barnraise.wire.messages import Message


class Action(msgspec.Struct, frozen=True, gc=False):
    """Base of all actions."""


class Journal(Action, frozen=True, gc=False):
    """Make the decision durable; for an accepted contribution, its payload first."""

    decision: Decision


class Send(Action, frozen=True, gc=False):
    node: str
    message: Message


class Receive(Action, frozen=True, gc=False):
    """Take the payload of what `node` offered: ask for it from where it stands; answer with `Arrived` as it comes."""

    node: str
    contribution: Contribution


class Inspect(Action, frozen=True, gc=False):
    """Decode the payload and measure it; answer with `Inspected`, and a sketch where there is a seed for one."""

    epoch: int
    node: str
    contribution: Contribution
    seed: int = 0


class Discard(Action, frozen=True, gc=False):
    """The payload that `node` sent for `assignment` will not be used."""

    node: str
    assignment: int


class Held(NamedTuple):
    """A contribution in a slot: what it weighs there, which codec its payload is written in, how many versions it was
    behind as it came, how far its node was trusted then (`trust.standing`), and by what its update is multiplied."""

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
    fresh_weight: float = 0.0  # theirs, were none of them stale; 0: none of them is
    excluded: bool = False  # the version is made without them (`controller.versions.loss_gate`)

    @property
    def weight(self) -> float:
        return sum(held.weight for held in self.contributions)

    @property
    def trust(self) -> float:
        """How far its node was trusted as the newest of them came."""
        return self.contributions[-1].trust if self.contributions else 1.0

    @property
    def freshness(self) -> float:
        """What staleness has left of the weights."""
        return self.weight / self.fresh_weight if self.fresh_weight else 1.0

    def plus(self, held: Held, fresh: float) -> Slot:
        """With one more, which would weigh `fresh` were it not stale."""
        return msgspec.structs.replace(
            self, contributions=(*self.contributions, held), fresh_weight=self.fresh_weight + fresh
        )

    def without(self, assignment: int, tokens: int, trains: bool) -> Slot:
        """Without the contribution of that assignment, if it is in it: of so many tokens, if its task `trains`."""
        left = tuple(held for held in self.contributions if held.assignment != assignment)
        found = (held for held in self.contributions if held.assignment == assignment)
        gone = sum(held.trust * tokens if trains else held.weight for held in found)
        return msgspec.structs.replace(self, contributions=left, fresh_weight=self.fresh_weight - gone)


class Gate(Action, frozen=True, gc=False):
    """Find up to `most` nodes without whose slots `version` has a lower loss on `rows` training rows, or all of them
    where it does harm even so; answer with `Gated`. The rows follow from `seed`, and the version moves by `rate` times
    what the rule makes of the slots."""

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
    rate: float  # the outer optimizer's rate is multiplied by it
    scales: tuple[float, ...] = ()  # and each range's aggregate by its own, in order


class Evaluate(Action, frozen=True, gc=False):
    """Measure `version` on held-out data; answer with `Evaluated`."""

    epoch: int
    version: int


SCORED_ROWS = 32
"""Rows of its own, and of others, that a contribution is scored by, at most."""


class Score(Action, frozen=True, gc=False):
    """Find what `node`'s contribution, which was accepted, does for the loss on the rows that it was to be trained on
    (its `steps` of the batches), and on others; answer with `Scored`. Which rows those are follows from `seed`."""

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
    """No task refers to these blobs any more (deltas too old to be worth sending)."""

    digests: tuple[str, ...]


class Finish(Action, frozen=True, gc=False):
    """This process has nothing left to do: the run is over and everything is durable; or it stays open, to be resumed,
    because it was `interrupted` or has `failed`."""

    reason: str
    failed: bool = False
    interrupted: bool = False
