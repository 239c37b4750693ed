"""The simulator's interface for its nodes."""

from __future__ import annotations

from typing import Any, Protocol

from barnraise.controller.state import events as ce
from barnraise.core.types import Blob
from barnraise.emulation.access import Access
from barnraise.emulation.chances import Chances
from barnraise.emulation.event_queue import Call
from barnraise.emulation.work import ControllerWork
from barnraise.wire.frames import Buffer


class World(Protocol):
    """Time, the controller at the other end of all links, and counters."""

    chances: Chances
    work: ControllerWork
    inbound: Access
    outbound: Access
    files: tuple[Blob, ...]  # files with rows
    file_bits: dict[str, int]
    payloads: dict[tuple[str, int], Buffer]  # payloads that have arrived, and are not judged yet
    events: int
    bytes_up: int
    bytes_down: int
    first_task: tuple[float, int]  # virtual seconds, bytes down by then

    @property
    def now(self) -> float:
        """Return the virtual time in seconds."""

    def at(self, time: float, call: Call, target: Any, incarnation: int, argument: Any) -> None:
        """Plan a call for a time."""

    def soon(self, call: Call, target: Any, incarnation: int, argument: Any) -> None:
        """Plan a call for now, after those that are planned for now already."""

    def handle(self, event: ce.Event) -> None:
        """Handle an event of the controller."""

    def bring(self, event: ce.Received, payload: Buffer) -> None:
        """Deliver an offer to the controller, and its payload with it."""

    def give_up(self, reason: str) -> None:
        """Remove a node that has stopped permanently, though the run continues."""
