"""What can happen to a worker's state machine."""

from __future__ import annotations

import msgspec

from barnraise.core.types import AnyResult, Blob, Load, NodeProfile
from barnraise.wire.messages import Message
from barnraise.worker.limits import Limits


class Event(msgspec.Struct, frozen=True, gc=False):
    """Base of all events."""


class Received(Event, frozen=True, gc=False):
    """A message from the controller."""

    message: Message


class Fetched(Event, frozen=True, gc=False):
    """The blob is at hand, its digest checked. `num_bytes` crossed the link for it: 0 when it was here already."""

    digest: str
    num_bytes: int


class FetchFailed(Event, frozen=True, gc=False):
    """The controller does not keep the blob (any more)."""

    digest: str


class Prepared(Event, frozen=True, gc=False):
    """Model and data are ready; `files` are the blobs of the token shards, in order, and last that of the held-out
    rows; the machine is measured, and `limits` are what its memory allows."""

    files: tuple[Blob, ...]
    profile: NodeProfile
    limits: Limits = Limits()


class Updated(Event, frozen=True, gc=False):
    """The replica is at `version`, its digest checked; -1 when it did not match and the replica is void."""

    version: int


class Nearly(Event, frozen=True, gc=False):
    """The running task has reached the step at which to ask for the next one."""

    assignment: int


class TaskDone(Event, frozen=True, gc=False):
    """The task ended; the payload of a contribution is kept until it is settled."""

    result: AnyResult


class TaskFailed(Event, frozen=True, gc=False):
    """The task ended in numbers that are not finite: there is no update, and nothing of it is kept."""

    assignment: int


class Measured(Event, frozen=True, gc=False):
    """How busy the machine is: about once a minute."""

    load: Load


class Tick(Event, frozen=True, gc=False):
    """Time has passed: the machine's `deadline` is reached."""


class LeaveRequested(Event, frozen=True, gc=False):
    """Hand in what there is and go (SIGTERM)."""

    reason: str
