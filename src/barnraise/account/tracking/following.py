"""Trackers that follow a run's ledger."""

from __future__ import annotations

import asyncio
import importlib
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

from barnraise.account.reducer import RowFeed
from barnraise.account.tracking.base import Tracker
from barnraise.account.tracking.measures import Measures
from barnraise.core.text import printable
from barnraise.core.trackers import require
from barnraise.ledger import LedgerView, RunDirectory

EVERY = 5.0
"""Seconds between two looks at the ledger."""

POSITIONS = "positions.json"


class Tracking:
    """Hands the figures of a run to trackers, each figure once: also after the run was resumed.

    A file beside the trackers' own has the last row of the ledger that each tracker has taken. One thread at a time.
    """

    def __init__(self, run: RunDirectory, names: Sequence[str], folder: Path | None = None) -> None:
        """Raise InputError when this machine lacks a tracker; `folder` is in the run directory unless given."""
        require(names)
        self.folder = folder or run.path / "tracking"
        self._names, self._run = list(dict.fromkeys(names)), run
        self._view: LedgerView | None = None
        self._trackers: dict[str, Tracker] = {}
        self._lock = threading.Lock()

    def advance(self) -> int:
        """Hand over what is new, and return how many points some tracker took. Raises StorageError, CorruptionError."""
        with self._lock:
            if self._view is None:
                self._open()
            self._feed.advance()
            points = self._measures.take()
            given = set[int]()
            for name, tracker in self._trackers.items():
                for point in points:
                    if point.row_id > self._taken.get(name, 0):
                        tracker.log(point)
                        self._taken[name] = point.row_id
                        given.add(point.row_id)
            if given:
                (self.folder / POSITIONS).write_text(json.dumps(self._taken))
            return len(given)

    async def follow(self, warn: Callable[[str], None], every: float = EVERY) -> None:
        """Hand over what is new each `every` seconds; a tracker that fails is reported, and the run continues."""
        try:
            while True:
                await asyncio.sleep(every)
                await asyncio.to_thread(self.advance)
        except Exception as error:  # trackers raise exceptions of any type
            warn(_failed(error))

    def finish(self, warn: Callable[[str], None]) -> None:
        """Hand over the rest, and close; a tracker that fails is reported."""
        try:
            self.advance()
            self.close()
        except Exception as error:  # trackers raise exceptions of any type
            warn(_failed(error))

    def close(self) -> None:
        """Close the trackers and the ledger."""
        with self._lock:
            for tracker in self._trackers.values():
                tracker.close()
            self._trackers = {}
            if self._view is not None:
                self._view.close()

    def _open(self) -> None:
        self._view = LedgerView(self._run.ledger)
        self._measures = Measures()
        self._feed = RowFeed(self._view, [self._measures])
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / POSITIONS
        self._taken: dict[str, int] = json.loads(path.read_text()) if path.is_file() else {}
        self._trackers = {name: self._opened(name) for name in self._names}

    def _opened(self, name: str) -> Tracker:
        trackers = importlib.import_module("barnraise.account.tracking.trackers")
        return cast("Tracker", trackers.CLASSES[name](self._run.path.name, self.folder / name))


def _failed(error: Exception) -> str:
    return f"run.report_to: no more figures are reported: {printable(str(error) or type(error).__name__)}"
