"""Where a dashboard has its run from: the controller in this process, or a run directory of another one."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import TimeoutError as NotInTime
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from barnraise.account.moment import RunMoment
from barnraise.account.present import Present
from barnraise.assembly.account_keeper import AccountKeeper
from barnraise.assembly.present import present_of
from barnraise.config.load import load
from barnraise.ledger import RunDirectory

if TYPE_CHECKING:
    from barnraise.assembly.hosting import Host  # it imports torch

PATIENCE = 2.0
"""Seconds that a controller has to tell its present; a moment without it is shown then."""


class RunSource(Protocol):
    """A run that can be looked at again and again, from any thread."""

    run: RunDirectory

    def look(self) -> RunMoment:
        """Return the run as it is now. Raises BarnraiseError."""

    @property
    def reading(self) -> AbstractContextManager[object]:
        """Return a lock: while it is held, no thread changes what a moment holds."""

    def stop(self) -> None:
        """Wait for no controller any more: its thread may be the one that waits for this one."""

    def close(self) -> None: ...


class FolderSource:
    """A run directory, whose controller is another process, or none: of what that knows only the ledger is seen."""

    def __init__(self, run: RunDirectory) -> None:
        """Raises InputError for a run file that cannot be read. The ledger is opened at the first look."""
        self.run, self._budget = run, load(run.run_file).training.tokens
        self._keeper = AccountKeeper(run, self._budget)

    def look(self) -> RunMoment:
        works = self.run.holder() is not None  # before the ledger: a run that ends in between is not cut short
        return RunMoment(*self._keeper.read(), self._budget, works)

    @property
    def reading(self) -> AbstractContextManager[object]:
        return self._keeper.reading

    def stop(self) -> None:
        """There is no controller to wait for."""

    def close(self) -> None:
        self._keeper.close()


class HostSource:
    """The run of a controller of this process, which works in the event loop that is running now."""

    def __init__(self, host: Host) -> None:
        self.run = host.run
        self._host, self._loop = host, asyncio.get_running_loop()
        self._stopped = threading.Event()

    def look(self) -> RunMoment:
        present = self._present()
        return RunMoment(*self._host.account.read(), self._host.machine.settings.tokens, works=True, present=present)

    @property
    def reading(self) -> AbstractContextManager[object]:
        return self._host.account.reading

    def stop(self) -> None:
        self._stopped.set()

    def close(self) -> None:
        """Leave all to the host."""

    def _present(self) -> Present | None:
        """Return what the controller knows beside the ledger; None where it does not tell in time."""
        if self._stopped.is_set():
            return None
        asked = asyncio.run_coroutine_threadsafe(self._tell(), self._loop)
        try:
            return asked.result(PATIENCE)
        except NotInTime:
            asked.cancel()
            return None

    async def _tell(self) -> Present:
        return present_of(self._host)
