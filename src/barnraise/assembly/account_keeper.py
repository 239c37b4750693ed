"""The account of a run while its controller works: ready for observers, and its cache file near the ledger's end."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

from barnraise.account.account import Account, AccountReader, behind
from barnraise.account.folded import OverTime
from barnraise.account.run_status import encoded_from_afar
from barnraise.core.errors import BarnraiseError
from barnraise.ledger import Ledger, RunDirectory

REFRESH_EVERY = 10.0
"""Seconds between two looks at whether the cache file is far behind."""


class AccountKeeper:
    """Reads the account of a run for the process that is its controller; any thread may call it.

    A caller holds `reading` as long as it uses what is folded over the run's time: further reading changes that.
    """

    def __init__(self, run: RunDirectory, budget: int) -> None:
        """Nothing is read yet. `budget` is in tokens."""
        self.run, self.budget = run, budget
        self.reading = threading.RLock()
        self._closed = False
        self._reader: AccountReader | None = None

    def read(self) -> tuple[Account, OverTime]:
        """Return the account by now, and what is folded over the run's time. Raises StorageError, CorruptionError."""
        with self.reading:
            return self._read(), self._open().over_time

    def status(self) -> bytes:
        """Return the run's status for an observer, encoded. Raises StorageError, CorruptionError."""
        return encoded_from_afar(self.read()[0], self.budget)

    async def keep_cache(self, ledger: Ledger, every: float = REFRESH_EVERY) -> None:
        """Write the cache file whenever the ledger has many new rows, looking at it each `every` seconds.

        So `status` answers at once, also after a crash. A ledger that cannot be read is left to its controller.
        """
        kept = 0
        with suppress(BarnraiseError):
            while True:
                await asyncio.sleep(every)
                if ledger.last_id - kept >= behind(ledger.last_id):
                    await asyncio.to_thread(self._advance)
                    kept = ledger.last_id

    def close(self) -> None:
        """Stop reading, and close the connection to the ledger."""
        self._closed = True
        with self.reading:
            self._drop()

    def _read(self) -> Account:
        try:
            return self._open().read()
        except BaseException:
            self._drop()
            raise

    def _advance(self) -> None:
        with self.reading:
            if not self._closed:
                try:
                    self._open().advance(lambda: self._closed)
                except BaseException:
                    self._drop()
                    raise

    def _open(self) -> AccountReader:
        if self._reader is None:
            self._reader = AccountReader(self.run)
        return self._reader

    def _drop(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
