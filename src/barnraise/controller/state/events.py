"""What can happen to the controller's state machine.

Results of work that the machine asked for carry the `epoch` they belong to: a result of a dead epoch is dropped. The
last three events come from parts of the machine itself, which yield them among their steps.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from barnraise.core.types import Blob, ParameterRange, Telemetry
from barnraise.ledger.decisions import Change
from barnraise.ledger.notes import Note
from barnraise.wire.messages import Message


class Event(msgspec.Struct, frozen=True, gc=False):
    """Base of all events."""


class Admitted(Event, frozen=True, gc=False):
    """A key proved an invite's secret and becomes node `node`, which signs with `signer`; a local worker needs no
    `invite`, and what is simulated signs nothing. `role` is what it is let in for, and `owner` the same for all that
    count as one's."""

    node: str
    key: str
    invite: str = ""  # the token's name
    signer: str = ""
    role: str = ""  # "": worker
    owner: str = ""  # "": nobody else's


class Rekeyed(Event, frozen=True, gc=False):
    """The node takes these keys; its old one vouched for them."""

    node: str
    key: str
    signer: str


class Received(Event, frozen=True, gc=False):
    """A message from an enrolled node. An `Offer` is a header: its payload comes when `Receive` asks for it."""

    node: str
    message: Message


class Heard(Event, frozen=True, gc=False):
    """A frame from the node that only its lease cares about (a fetch)."""

    node: str


class Arrived(Event, frozen=True, gc=False):
    """`num_bytes` of the payload that the node sends for `assignment` are here by now."""

    node: str
    assignment: int
    num_bytes: int


class Lost(Event, frozen=True, gc=False):
    """The shell knows that the node is gone, and how: its process was killed, ended as it was told to, or it left."""

    node: str
    reason: str
    how: Change = Change.LEFT


class Inspected(Event, frozen=True, gc=False):
    """The payload of `assignment` decodes to finite numbers of L2 norm `norm`; or `reason` says what is wrong. A
    `sketch` of them where that was asked for."""

    epoch: int
    assignment: int
    norm: float
    reason: str = ""
    sketch: bytes = b""


class Aggregated(Event, frozen=True, gc=False):
    """`version` exists: its parameters hash to `digest`, and `delta` leads there from the version before."""

    epoch: int
    version: int
    digest: str
    delta: Blob
    parameters: ParameterRange | None = None  # what the delta changes; None: all


class Unmade(Event, frozen=True, gc=False):
    """`version` cannot be made as it was asked for. By assignment: why payloads cannot be decoded (`void`), or be read
    any more (`lost`); or `reason`, when the numbers that they make are at fault."""

    epoch: int
    version: int
    void: dict[int, str]
    lost: dict[int, str]
    reason: str = ""


class Gated(Event, frozen=True, gc=False):
    """Without the slots of these nodes the loss after `version` is lower by `gain` nats a token."""

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
    """By how many nats a token the loss falls on a contribution's own rows, and on others; and how much more on its own
    than on others that are like them, in standard errors."""

    own: float
    others: float
    more: float


class Scored(Event, frozen=True, gc=False):
    """What a step along the contribution of `assignment` does to the loss of `version`; None where there is nothing to
    compare."""

    epoch: int
    assignment: int
    version: int = 0
    gains: Gains | None = None


class Checkpointed(Event, frozen=True, gc=False):
    """`version` is durable in a checkpoint with a manifest of this digest; or `reason` says why it could not be
    written."""

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
    """Make what there is durable and end this process; the run stays open. `failed`: because it cannot go on."""

    reason: str
    failed: bool = False


class RevokeRequested(Event, frozen=True, gc=False):
    """The host wants the node out, for good, from its next message on."""

    node: str
    reason: str


class Dropped(Event, frozen=True, gc=False):
    """Frames of the node (or of keys that are none: "") were malformed, or too many; and why the last was."""

    node: str
    reason: str
    count: int = 1


class Told(Event, frozen=True, gc=False):
    """Something that the shell knows, and the ledger shall keep."""

    note: Note


class Stalled(Event, frozen=True, gc=False):
    """For so long nothing was read: the disk had to be waited for."""

    seconds: float


class Traffic(Event, frozen=True, gc=False):
    """Bytes received and sent over the whole run, headers included."""

    bytes_up: int
    bytes_down: int


class Changed(Event, frozen=True, gc=False):
    """Something has changed: each part looks at what follows from it."""


class Forgotten(Event, frozen=True, gc=False):
    """The node has left, or starts over: the parts drop what they observed of its session."""

    node: str


class Reported(Event, frozen=True, gc=False):
    """The node has told how it does."""

    node: str
    telemetry: Telemetry
