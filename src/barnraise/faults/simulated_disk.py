"""The controller's disk in a simulation, which faults make slow or full."""

from __future__ import annotations

import math

from barnraise.controller.state.settings import DISK_PATIENCE, DISK_PAUSE

NO_ROOM = "no space left on the disk"


class Disk:
    """The state of the disk.

    `slow` has the extra seconds of each fault in force; before `full_until` there is no room.
    """

    def __init__(self) -> None:
        self.slow: list[float] = []
        self.full_until = 0.0

    def full(self, now: float) -> bool:
        return now < self.full_until

    def checkpoint_seconds(self) -> float:
        """Return the seconds that a checkpoint takes."""
        return sum(self.slow)

    def commit_seconds(self, now: float) -> float | None:
        """Return the seconds that a commit takes which begins now, or None where the controller gives it up.

        The controller tries it again until there is room.

        >>> disk = Disk()
        >>> disk.full_until = 3.0
        >>> disk.commit_seconds(0.0), disk.commit_seconds(5.0)
        (4.0, 0.0)
        """
        lacking = max(0.0, self.full_until - now)
        if lacking > DISK_PATIENCE + DISK_PAUSE:
            return None
        return math.ceil(lacking / DISK_PAUSE) * DISK_PAUSE + sum(self.slow)
