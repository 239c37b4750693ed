"""Requests of other commands to a run's controller: small files in its folder, `requests/`.

A running controller looks twice a second, a starting one before it listens. A request is removed once its result is
durable, so that a crash loses none, and handling one again changes nothing more.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from barnraise.controller.state.events import Event, RevokeRequested, StopRequested
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


Request = FinishRun | RevokeNode

TAKE_OVER = "take-over"
"""A request to the standby that keeps a copy, by the name of its file: controllers ignore it."""


def put(run: RunDirectory, request: Request) -> Path:
    """Write a request for the run's controller.

    Raises StorageError.
    """
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


def taken_up(run: RunDirectory, path: Path) -> bool:
    """Wait while a controller runs, and return whether one handled the request.

    Otherwise it is kept for the next one.
    """
    while path.exists():
        if run.holder() is None:
            return not path.exists()
        time.sleep(PATIENCE)
    return True


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
