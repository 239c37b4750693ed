"""The events of the controller's state machine.

Results of work that the machine asked for carry the `epoch` they belong to: a result of an earlier epoch is dropped.
The last three events come from parts of the machine itself, which yield them among their steps.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from barnraise.core.types import Blob, ParameterRange, Telemetry
from barnraise.ledger.decisions import Change
from barnraise.ledger.notes import Note
from barnraise.wire.messages import Message


class Event(msgspec.Struct, frozen=True, gc=False):
    """Base class of all events of the controller."""


class Admitted(Event, frozen=True, gc=False):
    """A key proved an invite's secret and becomes node `node`, which signs with `signer`.

    A local worker needs no `invite`, and simulated nodes sign nothing. `role` is that of the invite, and `owner` the
    same for all nodes of one owner.
    """

    node: str
    key: str
    invite: str = ""  # the token's name
    signer: str = ""
    role: str = ""  # "": worker
    owner: str = ""  # "": its own


class Rekeyed(Event, frozen=True, gc=False):
    """The node takes new keys, which its old one endorsed."""

    node: str
    key: str
    signer: str


class Received(Event, frozen=True, gc=False):
    """A message from an enrolled node.

    An `Offer` is a header: its payload comes when `Receive` asks for it.
    """

    node: str
    message: Message


class Heard(Event, frozen=True, gc=False):
    """A frame of the node that only renews its lease (a fetch)."""

    node: str


class Arrived(Event, frozen=True, gc=False):
    """The first `num_bytes` bytes of the node's payload for `assignment` have arrived."""

    node: str
    assignment: int
    num_bytes: int


class Lost(Event, frozen=True, gc=False):
    """The shell reports the loss of a node: its process was killed, ended as requested, or it left."""

    node: str
    reason: str
    how: Change = Change.LEFT


class Inspected(Event, frozen=True, gc=False):
    """The payload of `assignment` was inspected.

    It decodes to finite numbers of L2 norm `norm`; or `reason` is its defect. A `sketch` of them where one was asked
    for.
    """

    epoch: int
    assignment: int
    norm: float
    reason: str = ""
    sketch: bytes = b""


class Aggregated(Event, frozen=True, gc=False):
    """The version exists: its parameters hash to `digest`, and `delta` leads there from the version before."""

    epoch: int
    version: int
    digest: str
    delta: Blob
    parameters: ParameterRange | None = None  # the range that the delta changes; None: all


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


class Gated(Event, frozen=True, gc=False):
    """The loss after `version` is lower by `gain` nats a token without the slots of these nodes."""

    epoch: int
    version: int
    nodes: tuple[str, ...] = ()
    gain: float = 0.0


class Evaluated(Event, frozen=True, gc=False):
    """Held-out cross-entropy of `version`, nats a token."""

    epoch: int
    version: int
    loss: float


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


class Checkpointed(Event, frozen=True, gc=False):
    """The version is durable in a checkpoint with a manifest of this digest, or `reason` is why it is not."""

    epoch: int
    version: int
    reason: str = ""
    digest: str = ""


class Tick(Event, frozen=True, gc=False):
    """Time has passed: the machine's `deadline` is reached."""


class StopRequested(Event, frozen=True, gc=False):
    """Finish now, with what was accepted so far."""

    reason: str


class InterruptRequested(Event, frozen=True, gc=False):
    """Make the accepted work durable and end this process; the run stays open.

    `failed`: because it cannot continue.
    """

    reason: str
    failed: bool = False


class RevokeRequested(Event, frozen=True, gc=False):
    """The host excludes the node permanently, from its next message on."""

    node: str
    reason: str


class Dropped(Event, frozen=True, gc=False):
    """Frames of the node (or of unknown keys: "") were malformed, or too many.

    The reason is that of the last.
    """

    node: str
    reason: str
    count: int = 1


class Told(Event, frozen=True, gc=False):
    """A fact from the shell that the ledger shall keep."""

    note: Note


class Stalled(Event, frozen=True, gc=False):
    """For these seconds no message was read, while the shell waited for the disk."""

    seconds: float


class Traffic(Event, frozen=True, gc=False):
    """Bytes received and sent over the whole run, headers included."""

    bytes_up: int
    bytes_down: int


class Changed(Event, frozen=True, gc=False):
    """The state has changed: each part looks at the consequences."""


class Forgotten(Event, frozen=True, gc=False):
    """The node has left, or starts over: the parts drop what they observed of its session."""

    node: str


class Reported(Event, frozen=True, gc=False):
    """The node has reported its load and link."""

    node: str
    telemetry: Telemetry
