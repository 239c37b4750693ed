"""Trackers that follow a run's ledger."""

from __future__ import annotations

import asyncio
import importlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import cast

import msgspec

from barnraise.account.reducer import RowFeed
from barnraise.account.tracking.base import Tracker
from barnraise.account.tracking.handing import TrackerThread, text_of
from barnraise.account.tracking.measures import Measures
from barnraise.core.decoding import MALFORMED
from barnraise.core.files import write_file
from barnraise.core.program import program
from barnraise.core.trackers import require
from barnraise.ledger import LedgerView, RunDirectory

EVERY = 5.0
"""Seconds between two looks at the ledger."""

PATIENCE = 30.0
"""Seconds that the end of a run waits for its trackers."""

POSITIONS = "positions.json"


class Tracking:
    """Hands the figures of a run to trackers, each figure once: also after the run was resumed.

    A file beside the trackers' own has the last row of the ledger that each tracker has taken. Each tracker has a
    thread of its own: one that hangs holds up no other. One that raises, or leaves too many figures waiting, gets no
    more; a later `Tracking` gives it what it lacks. One thread at a time.
    """

    def __init__(self, run: RunDirectory, names: Sequence[str], folder: Path | None = None) -> None:
        """Raise InputError when this machine lacks a tracker; `folder` is in the run directory unless given."""
        require(names)
        self.folder = folder or run.path / "tracking"
        self._told = set[str]()  # trackers whose failure is reported
        self._names, self._run = list(dict.fromkeys(names)), run
        self._view: LedgerView | None = None
        self._taken: dict[str, int] = {}
        self._threads: dict[str, TrackerThread] = {}
        self._lock, self._measures = threading.Lock(), Measures()

    @property
    def failures(self) -> dict[str, str]:
        """Return why trackers get no more figures, by their names."""
        return {name: thread.failure for name, thread in self._threads.items() if thread.failure}

    def advance(self, patience: float | None = None) -> int:
        """Hand over what is new, and return how many points some tracker took; `failures` has trackers that raised.

        Waits at most `patience` seconds for the trackers (None: until all have taken theirs). Raises StorageError,
        CorruptionError, OSError.
        """
        with self._lock:
            if self._view is None:
                self._open()
            self._feed.advance()
            points, before = self._measures.points, {name: one.taken for name, one in self._threads.items()}
            for thread in self._threads.values():
                thread.give(points)
            self._wait(patience)
            given = {
                point.row_id
                for point in points
                for name, thread in self._threads.items()
                if before[name] < point.row_id <= thread.taken
            }
            self._store()
            points.clear()
            return len(given)

    async def follow(self, warn: Callable[[str], None], every: float = EVERY) -> None:
        """Hand over what is new each `every` seconds; a tracker that fails is reported, and the run continues."""
        try:
            while len(self.failures) < len(self._names):
                await asyncio.sleep(every)
                await _in_daemon(lambda: self.advance(every))
                self._tell(warn)
        except Exception as error:  # the ledger or the file of positions cannot be used
            warn(f"run.report_to: no more figures are reported: {text_of(error)}")

    def finish(self, warn: Callable[[str], None], patience: float = PATIENCE) -> None:
        """Hand over the rest, and close, in at most `patience` seconds; a tracker that fails or hangs is reported."""
        try:
            try:
                self.advance(0.0)
            finally:
                self.close(patience)
        except Exception as error:  # the ledger or the file of positions cannot be used
            warn(f"run.report_to: the last figures are not reported: {text_of(error)}")
        self._tell(warn)

    def close(self, patience: float | None = None) -> None:
        """Close the trackers, for which it waits `patience` seconds, and the ledger; `failures` has those that raised.

        Those that take longer have the failure that they hang.
        """
        with self._lock:
            for thread in self._threads.values():
                thread.close()
            end = None if patience is None else time.monotonic() + patience
            for thread in self._threads.values():
                if not thread.join(None if end is None else max(0.0, end - time.monotonic())):
                    thread.failure = thread.failure or f"it took more than {patience:g} s"
            if self._view is not None:
                self._view.close()
                self._store()

    def _open(self) -> None:
        view = LedgerView(self._run.ledger)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._taken = _positions(self.folder / POSITIONS)
        except BaseException:
            view.close()
            raise
        self._view, self._feed = view, RowFeed(view, [self._measures])
        self._threads = {
            name: TrackerThread(partial(self._opened, name), self._taken.get(name, 0)) for name in self._names
        }

    def _store(self) -> None:
        """Write how far each tracker is, if one has taken more."""
        taken = self._taken | {name: thread.taken for name, thread in self._threads.items() if thread.taken}
        if taken != self._taken:
            write_file(self.folder / POSITIONS, msgspec.json.encode(taken))
            self._taken = taken

    def _wait(self, patience: float | None) -> None:
        """Wait for the trackers, all together `patience` seconds at most."""
        end = None if patience is None else time.monotonic() + patience
        for thread in self._threads.values():
            thread.wait(None if end is None else max(0.0, end - time.monotonic()))

    def _opened(self, name: str) -> Tracker:
        trackers = importlib.import_module("barnraise.account.tracking.trackers")
        return cast("Tracker", trackers.CLASSES[name](self._run.path.name, self.folder / name))

    def _tell(self, warn: Callable[[str], None]) -> None:
        """Report each failure once."""
        for name, why in self.failures.items():
            if name not in self._told:
                command = f"{program()} report {self._run.path} --to {name}"
                warn(f"run.report_to: {name} gets no more figures: {why}; what it lacks is written by: {command}")
                self._told.add(name)


async def _in_daemon(work: Callable[[], object]) -> None:
    """Run `work` in a thread that the end of the process does not wait for, unlike those of `asyncio.to_thread`."""
    done: Future[None] = Future()
    done.set_running_or_notify_cancel()  # so that a waiter that is cancelled leaves it alone

    def run() -> None:
        try:
            work()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=run, daemon=True).start()
    await asyncio.wrap_future(done)


def _positions(path: Path) -> dict[str, int]:
    """Return the positions that a file holds: none when it is missing or damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, int])
    except (FileNotFoundError, *MALFORMED):
        return {}
