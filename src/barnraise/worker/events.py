"""The events of a worker's state machine."""

from __future__ import annotations

import msgspec

from barnraise.core.sites import OwnRows
from barnraise.core.types import AnyResult, Blob, Load, NodeProfile
from barnraise.wire.messages import Message
from barnraise.worker.limits import Limits


class Event(msgspec.Struct, frozen=True, gc=False):
    """Base class of all events of the worker."""


class Received(Event, frozen=True, gc=False):
    """A message from the controller."""

    message: Message


class Fetched(Event, frozen=True, gc=False):
    """The blob is available, with the right digest.

    `num_bytes` crossed the link for it: 0 when it was here already.
    """

    digest: str
    num_bytes: int


class FetchFailed(Event, frozen=True, gc=False):
    """The controller does not keep the blob (any more)."""

    digest: str


class Prepared(Event, frozen=True, gc=False):
    """Model and data are ready, and the machine is measured.

    `files` are the blobs of the token shards, in order, and last that of the held-out rows; `limits` are those of its
    memory. `version` is that of a replica of an earlier process, with its digest; -1: none. `own` describes rows of its
    own, which tasks name instead of those files.
    """

    files: tuple[Blob, ...]
    profile: NodeProfile
    limits: Limits = Limits()
    version: int = -1
    digest: str | None = None
    own: OwnRows | None = None


class Updated(Event, frozen=True, gc=False):
    """The replica is at `version`, its digest checked; -1 when it did not match and the replica is void."""

    version: int


class Nearly(Event, frozen=True, gc=False):
    """The running task has reached the step at which to ask for the next one."""

    assignment: int


class Trained(Event, frozen=True, gc=False):
    """The steps of the running task are taken; `TaskDone` or `TaskFailed` follows once its update is encoded."""

    assignment: int


class TaskDone(Event, frozen=True, gc=False):
    """The task ended; the payload of a contribution is kept until it is settled."""

    result: AnyResult


class TaskFailed(Event, frozen=True, gc=False):
    """The task ended in numbers that are not finite, or the code of its problem raised: there is no update.

    `reason` tells the controller of the latter.
    """

    assignment: int
    reason: str = ""


class ProofChecked(Event, frozen=True, gc=False):
    """A proof that `version` has an own masked update was checked: `fault` says why it is false, "" when it holds."""

    assignment: int
    version: int
    fault: str = ""


class Measured(Event, frozen=True, gc=False):
    """A measurement of the machine's load, and of the cost of protections (0: not known), about once a minute."""

    load: Load
    overhead: float = 0.0


class Tick(Event, frozen=True, gc=False):
    """Time has passed: the machine's `deadline` is reached."""


class LeaveRequested(Event, frozen=True, gc=False):
    """The owner asks the worker to submit its results and leave (SIGTERM)."""

    reason: str
