"""Periodic reading of a worker's progress, twice a second, for the machine's owner."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from barnraise.transport.roaming import RoamingConnection
from barnraise.worker.machine import Worker
from barnraise.worker.progress import Progress, progress

INTERVAL = 0.5
"""Seconds between two readings."""

Show = Callable[[Progress], None]


class Gauges:
    """Values that are read beside the machine: the process's start, the running task's `step`, and the bytes."""

    def __init__(self, machine: Worker, show: Show | None) -> None:
        self.machine, self.step = machine, 0
        self._show, self._began = show, time.monotonic()

    def read(self, connection: RoamingConnection) -> None:
        """Show the worker's progress now."""
        if self._show is not None:
            traffic = {"bytes_up": connection.bytes_up, "bytes_down": connection.bytes_down}
            self._show(progress(self.machine, began=self._began, now=time.monotonic(), step=self.step, **traffic))

    async def keep_reading(self, connection: RoamingConnection) -> None:
        """Show it for as long as the worker lives."""
        while True:
            self.read(connection)
            await asyncio.sleep(INTERVAL)
