"""The effects of the controller: its work on tensors and files, each action with the events that answer it.

The shell carries out an effect on the thread that the effect declares (`tensors/effects.py` has the implementations),
and a simulation at once (`emulation/effects.py`). An answer carries the `epoch` of its effect: the answer to an effect
of an earlier epoch is dropped.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import msgspec

from barnraise.controller.state.actions import Action, Slot
from barnraise.controller.state.events import Event
from barnraise.core.types import Batches, Blob, Contribution, Inspection, PayloadResult, Ranges, Seats
from barnraise.ledger.measured import TextSample
from barnraise.trust.signatures import RunId

THREADS = ("inspect", "evaluate", "measure", "version", "checkpoint")
"""The threads of the shell that carry out effects, one effect at a time each, in order."""


class ControllerEffect(Action, frozen=True, gc=False):
    """Base class of all effects. `thread` is the one of THREADS that carries it out."""

    thread: ClassVar[str]

    epoch: int


class Inspect(ControllerEffect, frozen=True, gc=False):
    """Look into the payload; answer with `Inspected`, and a sketch where there is a seed for one.

    Its digest is checked at any `depth`. At "full" it is decoded and measured, at "header" its header is checked.
    """

    thread: ClassVar[str] = "inspect"

    node: str
    result: PayloadResult
    seed: int = 0
    depth: Inspection = "full"


class Inspected(Event, frozen=True, gc=False):
    """The payload of `assignment` was inspected.

    It decodes to finite numbers of L2 norm `norm` (0 at a lesser depth); or `reason` is its defect. A `sketch` of them
    where one was asked for.
    """

    epoch: int
    assignment: int
    norm: float
    reason: str = ""
    sketch: bytes = b""


class Gate(ControllerEffect, frozen=True, gc=False):
    """Find up to `most` nodes without whose slots `version` has a lower loss; answer with `Gated`.

    The loss is that of `rows` training rows, which follow from `seed`. All nodes are found where the version is harmful
    even so. The version moves by `rate` times the rule's aggregate of the slots.
    """

    thread: ClassVar[str] = "evaluate"

    version: int
    slots: tuple[Slot, ...]
    rate: float
    most: int
    rows: int
    seed: int


class Gated(Event, frozen=True, gc=False):
    """The loss after `version` is lower by `gain` nats a token without the slots of these nodes."""

    epoch: int
    version: int
    nodes: tuple[str, ...] = ()
    gain: float = 0.0


class Aggregate(ControllerEffect, frozen=True, gc=False):
    """Make `version` out of the slots, in this order; answer with `Aggregated`."""

    thread: ClassVar[str] = "version"

    version: int
    slots: tuple[Slot, ...]
    rate: float  # factor of the outer optimizer's rate
    scales: tuple[float, ...] = ()  # factors of the ranges' aggregates, in order
    masks: tuple[int, ...] = ()  # assignments that brought the sums of masks, where updates are masked


class Aggregated(Event, frozen=True, gc=False):
    """The version exists: its parameters hash to `digest`, and `delta` leads there from the version before.

    `left_out`: by the contributions of a masked group that it is made without, why.
    """

    epoch: int
    version: int
    digest: str
    delta: Blob
    parameters: Ranges | None = None  # the ranges that the delta changes; None: all
    left_out: dict[tuple[int, ...], str] = msgspec.field(default_factory=dict)


class Unmade(Event, frozen=True, gc=False):
    """The version cannot be made as requested.

    By assignment: why payloads cannot be decoded (`void`), or be read any more (`lost`); or `reason`, when the
    resulting numbers are at fault.
    """

    epoch: int
    version: int
    void: dict[int, str]
    lost: dict[int, str]
    reason: str = ""


class Member(NamedTuple):
    """A masked update in a list: its assignment, node, the node's signing key, and the version that it began at."""

    assignment: int
    node: str
    signer: str
    base: int
    model: str  # digest of that version


class ListMembers(ControllerEffect, frozen=True, gc=False):
    """Make the list of a version's members, which continues the version of digest `model`; answer with `Listed`."""

    thread: ClassVar[str] = "inspect"

    run: RunId
    version: int
    model: str
    nonce: str
    members: tuple[Member, ...]
    committee: Seats


class Listed(Event, frozen=True, gc=False):
    """The list of `version`: its digest, its canonical bytes, and the members' sealed seeds for each seat.

    It has `num_groups` groups. `void` are members whose payloads cannot be in it, `lost` those whose payloads cannot be
    read any more, with the reason.
    """

    epoch: int
    version: int
    digest: str = ""
    content: bytes = b""
    shares: tuple[tuple[bytes, ...], ...] = ()
    num_groups: int = 0
    void: dict[int, str] = msgspec.field(default_factory=dict)
    lost: dict[int, str] = msgspec.field(default_factory=dict)


class Evaluate(ControllerEffect, frozen=True, gc=False):
    """Measure `version` on held-out data; answer with `Evaluated`."""

    thread: ClassVar[str] = "evaluate"

    version: int


class Evaluated(Event, frozen=True, gc=False):
    """Held-out cross-entropy of `version`, nats a token."""

    epoch: int
    version: int
    loss: float


class Measure(ControllerEffect, frozen=True, gc=False):
    """Measure `version` by the run's metrics, and let it write samples; answer with `Measured`."""

    thread: ClassVar[str] = "measure"

    version: int


class Measured(Event, frozen=True, gc=False):
    """The values of `version` by metric, its samples, and why metrics gave none, as far as it is to be told."""

    epoch: int
    version: int
    values: dict[str, float] = msgspec.field(default_factory=dict)
    samples: tuple[TextSample, ...] = ()
    failures: dict[str, str] = msgspec.field(default_factory=dict)


SCORED_ROWS = 32
"""Rows of its own, and others, that a contribution is scored by, at most."""


class Score(ControllerEffect, frozen=True, gc=False):
    """Measure what an accepted contribution does for the loss of its own rows, and of others; answer with `Scored`.

    Its own rows are those of its `steps` of the batches. The choice of rows follows from `seed`.
    """

    thread: ClassVar[str] = "evaluate"

    node: str
    contribution: Contribution
    batches: Batches
    steps: int
    seed: int


class Gains(NamedTuple):
    """The fall of the loss in nats a token, on a contribution's own rows, and on others.

    And how much more on its own than on similar others, in standard errors.
    """

    own: float
    others: float
    more: float


class Scored(Event, frozen=True, gc=False):
    """The effect of a step along the contribution of `assignment` on the loss of `version`.

    None where there is nothing to compare.
    """

    epoch: int
    assignment: int
    version: int = 0
    gains: Gains | None = None


class Checkpoint(ControllerEffect, frozen=True, gc=False):
    """Make `version` durable, with the outer state and this machine's; answer with `Checkpointed`."""

    thread: ClassVar[str] = "checkpoint"

    version: int


class Checkpointed(Event, frozen=True, gc=False):
    """The version is durable in a checkpoint with a manifest of this digest, or `reason` is why it is not."""

    epoch: int
    version: int
    reason: str = ""
    digest: str = ""
