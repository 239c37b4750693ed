"""Batches of decisions on their way to the disk: one thread, which waits for a full disk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from barnraise.controller.state.settings import DISK_PATIENCE, DISK_PAUSE
from barnraise.core.errors import StorageError
from barnraise.core.spaced import Spaced
from barnraise.ledger import Ledger
from barnraise.ledger.decisions import Decision
from barnraise.ledger.segments import PayloadBytes


class GroupCommit:
    """Makes batches durable, one after the other, off the event loop."""

    def __init__(self, ledger: Ledger, warn: Callable[[str], None]) -> None:
        self.ledger, self.warn = ledger, warn
        self._thread = ThreadPoolExecutor(1, "ledger")
        self._full = Spaced()

    async def commit(self, decisions: Sequence[Decision], payloads: Mapping[int, PayloadBytes]) -> None:
        """Make a batch durable.

        Raises StorageError when the disk had no room for too long.
        """
        began, loop = time.monotonic(), asyncio.get_running_loop()
        while True:
            try:
                await loop.run_in_executor(self._thread, self.ledger.commit, decisions, payloads)
                if (seconds := self._full.over(time.monotonic())) is not None:
                    self.warn(f"the disk takes the ledger again, after {seconds:.0f} s; nothing was lost")
                return
            except StorageError as error:
                now = time.monotonic()
                if now - began > DISK_PATIENCE:
                    raise
                if self._full.again(now):
                    left = began + DISK_PATIENCE - now
                    self.warn(f"{error.message} (tried again for {left:.0f} s more; nothing is lost, workers wait)")
                await asyncio.sleep(DISK_PAUSE)

    def close(self) -> None:
        """Wait for the current batch."""
        self._thread.shutdown(wait=True)
