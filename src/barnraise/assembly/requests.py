"""What other commands want of a run: small files in its folder, `requests/`, which the run's controller takes up.

A controller that runs looks twice a second, one that starts looks before it listens. A request is removed once what
follows from it is durable, so that a crash loses none, and one that is taken up twice changes nothing more.
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
"""Seconds between two looks at whether a request was taken up."""


class FinishRun(msgspec.Struct, frozen=True, tag_field="kind", tag="finish"):
    """Make the last version of what was accepted so far, and end the run."""

    reason: str

    def event(self) -> Event:
        return StopRequested(self.reason)


class RevokeNode(msgspec.Struct, frozen=True, tag_field="kind", tag="revoke"):
    """Let the node take part no more."""

    node: str
    reason: str

    def event(self) -> Event:
        return RevokeRequested(self.node, self.reason)


Request = FinishRun | RevokeNode

TAKE_OVER = "take-over"
"""A request to the standby that keeps a copy, by the name of its file: controllers pass it over."""


def put(run: RunDirectory, request: Request) -> Path:
    """Leave a request for the run's controller. Raises StorageError."""
    return run.write_private(run.requests / f"{time.time_ns()}.json", msgspec.json.encode(request))


def put_take_over(run: RunDirectory) -> Path:
    """Tell the standby that keeps this copy to take over. Raises StorageError."""
    return run.write_private(run.requests / TAKE_OVER, b"")


def take_over_wanted(run: RunDirectory) -> bool:
    """Whether `put_take_over` was called since the last time."""
    path = run.requests / TAKE_OVER
    if not path.exists():
        return False
    path.unlink(missing_ok=True)
    return True


def taken_up(run: RunDirectory, path: Path) -> bool:
    """Wait while a controller runs: whether one took the request up. Otherwise it lies there for the next one."""
    while path.exists():
        if run.holder() is None:
            return not path.exists()
        time.sleep(PATIENCE)
    return True


async def obey(run: RunDirectory, server: Server, warn: Callable[[str], None]) -> None:
    """Take up what was left for this controller, the oldest first."""
    for path in sorted(run.requests.glob("*.json")):
        try:
            request = msgspec.json.decode(path.read_bytes(), type=Request)
        except (OSError, *MALFORMED) as error:
            warn(f"{path} is no request and is removed: {error}")
        else:
            await server.settle(request.event())
        path.unlink(missing_ok=True)
