"""The actions of a worker's state machine, which its shell carries out."""

from __future__ import annotations

import msgspec

from barnraise.core.types import AnyResult, AnyTask, Blob, News, PayloadResult
from barnraise.wire.messages import Included, Message, WorkerSettings


class Action(msgspec.Struct, frozen=True, gc=False):
    """Base class of all actions of the worker."""


class Send(Action, frozen=True, gc=False):
    message: Message


class Fetch(Action, frozen=True, gc=False):
    """Get the blob from the cache or the controller; answer with `Fetched` or `FetchFailed`."""

    blob: Blob
    snapshot: bool = False


class Forget(Action, frozen=True, gc=False):
    """Drop these blobs, which are not needed any more, and request no more of their bytes."""

    digests: frozenset[str]


class Prepare(Action, frozen=True, gc=False):
    """Build the model from the manifest and measure the machine; answer with `Prepared`."""

    manifest: Blob
    settings: WorkerSettings


class ApplyUpdates(Action, frozen=True, gc=False):
    """Bring the replica up to date, off the training thread, and the running task with it; answer with `Updated`."""

    news: News


class StartTask(Action, frozen=True, gc=False):
    """Carry the task out; answer with `TaskDone` or `TaskFailed`.

    `Nearly` is reported after `ask_at` steps (0: not at all).
    """

    task: AnyTask
    ask_at: int


class CutShort(Action, frozen=True, gc=False):
    """End the running task after the current step; `TaskDone` follows as usual."""


class Offer(Action, frozen=True, gc=False):
    """Send the header of a result, and with it a payload of INLINE_BYTES at most; it stays kept until `Settle`."""

    result: AnyResult


class Upload(Action, frozen=True, gc=False):
    """Send the payload from `offset` on, and stop sending any other."""

    result: PayloadResult
    offset: int


class CancelUpload(Action, frozen=True, gc=False):
    """Stop sending the payload that is on its way."""


class Settle(Action, frozen=True, gc=False):
    """Drop the payload, which the controller has answered.

    When it was not `accepted`, the update returns to the residual.
    """

    assignment: int
    accepted: bool


class CheckProof(Action, frozen=True, gc=False):
    """Check that a version has an own masked update, as it is told; answer with `ProofChecked`."""

    told: Included


class Say(Action, frozen=True, gc=False):
    """Tell the machine's owner."""

    text: str


class Quit(Action, frozen=True, gc=False):
    """End the worker's process and session.

    `left`: it leaves as it was asked to; `refusal`: the controller's code beside its reason.
    """

    reason: str
    final: bool
    left: bool = False
    refusal: str = ""
