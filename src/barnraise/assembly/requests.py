"""Requests of other commands to a run's controller: small files in its folder, `requests/`.

A running controller looks twice a second, a starting one before it listens. A request is removed once its result is
durable, so that a crash loses none, and handling one again changes nothing more.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from barnraise.controller.state.events import ContinueRequested, Event, PauseRequested, RevokeRequested, StopRequested
from barnraise.core.decoding import MALFORMED
from barnraise.ledger import RunDirectory

if TYPE_CHECKING:
    from barnraise.controller.shell.server import Server  # it imports torch

PATIENCE = 0.1
"""Seconds between two checks of whether a request was handled."""


class FinishRun(msgspec.Struct, frozen=True, tag_field="kind", tag="finish"):
    """Asks to make the last version of the accepted contributions, and end the run."""

    reason: str

    def event(self) -> Event:
        return StopRequested(self.reason)


class RevokeNode(msgspec.Struct, frozen=True, tag_field="kind", tag="revoke"):
    """Asks to exclude the node permanently."""

    node: str
    reason: str

    def event(self) -> Event:
        return RevokeRequested(self.node, self.reason)


class PauseRun(msgspec.Struct, frozen=True, tag_field="kind", tag="pause"):
    """Asks to assign no tasks until the run is continued; the `reason` may be ""."""

    reason: str

    def event(self) -> Event:
        return PauseRequested(self.reason)


class ContinueRun(msgspec.Struct, frozen=True, tag_field="kind", tag="continue"):
    """Asks to assign tasks again."""

    def event(self) -> Event:
        return ContinueRequested()


Request = FinishRun | RevokeNode | PauseRun | ContinueRun

TAKE_OVER = "take-over"
"""A request to the standby that keeps a copy, by the name of its file: controllers ignore it."""


def put(run: RunDirectory, request: Request) -> Path:
    """Write a request for the run's controller.

    Raises RunDirectoryError for a simulation, StorageError.
    """
    run.require_real("ask of a controller")
    return run.write_private(run.requests / f"{time.time_ns()}.json", msgspec.json.encode(request))


def put_take_over(run: RunDirectory) -> Path:
    """Tell the standby that keeps this copy to take over.

    Raises StorageError.
    """
    return run.write_private(run.requests / TAKE_OVER, b"")


def take_over_wanted(run: RunDirectory) -> bool:
    """Return whether `put_take_over` was called since the last time."""
    path = run.requests / TAKE_OVER
    if not path.exists():
        return False
    path.unlink(missing_ok=True)
    return True


class Uptake(Enum):
    """A request's outcome: a controller handled it, none runs, or the one that runs has not handled it yet.

    In the last two cases it is kept, for the next controller or for this one.
    """

    HANDLED = "handled"
    KEPT = "kept"
    WAITING = "waiting"


def taken_up(run: RunDirectory, path: Path, patience: float = math.inf) -> Uptake:
    """Wait for at most `patience` seconds while a controller runs, and return the outcome of the request."""
    until = time.monotonic() + patience
    while path.exists():
        if run.holder() is None:
            return Uptake.KEPT if path.exists() else Uptake.HANDLED
        if time.monotonic() >= until:
            return Uptake.WAITING
        time.sleep(PATIENCE)
    return Uptake.HANDLED


def ask(run: RunDirectory, request: Request, done: str, patience: float = math.inf) -> str:
    """Put a request, wait as `taken_up`, and return the sentence for a person; `done` is it once it is handled.

    Raises StorageError.
    """
    outcome = taken_up(run, put(run, request), patience)
    if outcome is Uptake.KEPT:
        return f"{done} as soon as it resumes; no controller runs now"
    if outcome is Uptake.WAITING:
        return "the run's controller was asked to, and has not answered yet"
    return done


def kept(run: RunDirectory) -> list[Request]:
    """Return the requests that no controller has handled yet, the oldest first; unreadable files are left out."""
    found = []
    for path in sorted(run.requests.glob("*.json")):
        with suppress(OSError, *MALFORMED):
            found.append(msgspec.json.decode(path.read_bytes(), type=Request))
    return found


async def obey(run: RunDirectory, server: Server, warn: Callable[[str], None]) -> None:
    """Handle the requests for this controller, the oldest first."""
    for path in sorted(run.requests.glob("*.json")):
        try:
            request = msgspec.json.decode(path.read_bytes(), type=Request)
        except (OSError, *MALFORMED) as error:
            warn(f"{path} is no request and is removed: {error}")
        else:
            await server.settle(request.event())
        path.unlink(missing_ok=True)
