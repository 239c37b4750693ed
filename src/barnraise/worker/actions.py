"""What a worker's state machine wants done."""

from __future__ import annotations

import msgspec

from barnraise.core.types import AnyResult, AnyTask, Blob, Contribution, News
from barnraise.wire.messages import Message, WorkerSettings


class Action(msgspec.Struct, frozen=True, gc=False):
    """Base of all actions."""


class Send(Action, frozen=True, gc=False):
    message: Message


class Fetch(Action, frozen=True, gc=False):
    """Get the blob from the cache or the controller; answer with `Fetched` or `FetchFailed`."""

    blob: Blob
    snapshot: bool = False


class Forget(Action, frozen=True, gc=False):
    """Nothing waits for these blobs any more: keep none of their bytes in memory, and ask for no more of them."""

    digests: frozenset[str]


class Prepare(Action, frozen=True, gc=False):
    """Build the model from the manifest and measure the machine; answer with `Prepared`."""

    manifest: Blob
    settings: WorkerSettings


class ApplyUpdates(Action, frozen=True, gc=False):
    """Bring the replica up to date, off the training thread, and the running task with it; answer with `Updated`."""

    news: News


class StartTask(Action, frozen=True, gc=False):
    """Carry the task out; say `Nearly` after `ask_at` steps (0: not at all), and answer with `TaskDone`
    or `TaskFailed`."""

    task: AnyTask
    ask_at: int


class CutShort(Action, frozen=True, gc=False):
    """End the running task after the step in hand; `TaskDone` follows as usual."""


class Offer(Action, frozen=True, gc=False):
    """Send the header of a result, and with it a payload of INLINE_BYTES at most; it stays kept until `Settle`."""

    result: AnyResult


class Upload(Action, frozen=True, gc=False):
    """Send the payload from `offset` on, and nothing of any other any more."""

    contribution: Contribution
    offset: int


class CancelUpload(Action, frozen=True, gc=False):
    """Send nothing more of the payload that is on its way."""


class Settle(Action, frozen=True, gc=False):
    """The controller has answered: forget the payload; when it was not `accepted`, take the update back into the
    residual."""

    assignment: int
    accepted: bool


class Quit(Action, frozen=True, gc=False):
    """Nothing is left to do here. `left` says that the worker goes as it was asked to, `refusal` what the controller
    said beside its reason."""

    reason: str
    final: bool
    left: bool = False
    refusal: str = ""
