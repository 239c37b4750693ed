"""The events of the controller's state machine.

`effects` has the events that answer effects of the controller.
The last three events come from parts of the machine itself, which yield them among their steps.
"""

from __future__ import annotations

import msgspec

from barnraise.core.types import Telemetry
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


class Tick(Event, frozen=True, gc=False):
    """Time has passed: the machine's `deadline` is reached."""


class StopRequested(Event, frozen=True, gc=False):
    """Finish now, with what was accepted so far."""

    reason: str


class PauseRequested(Event, frozen=True, gc=False):
    """The host pauses the run: nodes get no tasks until `ContinueRequested`, or a stop is asked for."""

    reason: str


class ContinueRequested(Event, frozen=True, gc=False):
    """The host continues the run that it has paused."""


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


class Faulty(Event, frozen=True, gc=False):
    """A result of the node was found to be malformed by others, in a way that no correct machine produces."""

    node: str
    assignment: int
    reason: str


class Changed(Event, frozen=True, gc=False):
    """The state has changed: each part looks at the consequences."""


class Forgotten(Event, frozen=True, gc=False):
    """The node has left, or starts over: the parts drop what they observed of its session."""

    node: str


class Reported(Event, frozen=True, gc=False):
    """The node has reported its load and link."""

    node: str
    telemetry: Telemetry
