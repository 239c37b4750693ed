"""The simulator, as its nodes see it."""

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
    """Time, the controller at the other end of all links, and what is counted."""

    chances: Chances
    work: ControllerWork
    inbound: Access
    outbound: Access
    files: tuple[Blob, ...]  # that hold rows
    file_bits: dict[str, int]
    payloads: dict[tuple[str, int], Buffer]  # that have arrived, and are not judged yet
    events: int
    bytes_up: int
    bytes_down: int
    first_task: tuple[float, int]  # virtual seconds, bytes down by then

    @property
    def now(self) -> float:
        """Virtual seconds."""

    def at(self, time: float, call: Call, target: Any, incarnation: int, argument: Any) -> None:
        """Plan a call for a time."""

    def soon(self, call: Call, target: Any, incarnation: int, argument: Any) -> None:
        """Plan a call for now, after what is planned for now already."""

    def handle(self, event: ce.Event) -> None:
        """Something happens to the controller."""

    def bring(self, event: ce.Received, payload: Buffer) -> None:
        """An offer reaches the controller, and its payload with it."""

    def give_up(self, reason: str) -> None:
        """A node has stopped for good, though the run goes on."""
