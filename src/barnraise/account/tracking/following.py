"""Trackers that follow a run's ledger."""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import cast

import msgspec

from barnraise.account.reducer import RowFeed
from barnraise.account.tracking.base import Tracker, VersionFigures
from barnraise.account.tracking.measures import Measures
from barnraise.core.decoding import MALFORMED
from barnraise.core.files import write_file
from barnraise.core.program import program
from barnraise.core.text import printable
from barnraise.core.trackers import require
from barnraise.ledger import LedgerView, RunDirectory

EVERY = 5.0
"""Seconds between two looks at the ledger."""

PATIENCE = 30.0
"""Seconds that the end of a run waits for its trackers."""

POSITIONS = "positions.json"


class Tracking:
    """Hands the figures of a run to trackers, each figure once: also after the run was resumed.

    A file beside the trackers' own has the last row of the ledger that each tracker has taken. A tracker that raises
    gets no more figures, and the others do; a later `Tracking` gives it what it lacks. One thread at a time.
    """

    def __init__(self, run: RunDirectory, names: Sequence[str], folder: Path | None = None) -> None:
        """Raise InputError when this machine lacks a tracker; `folder` is in the run directory unless given."""
        require(names)
        self.folder = folder or run.path / "tracking"
        self.failures: dict[str, str] = {}
        self._told = 0  # failures
        self._names, self._run = list(dict.fromkeys(names)), run
        self._view: LedgerView | None = None
        self._trackers: dict[str, Tracker] = {}
        self._lock = threading.Lock()

    def advance(self) -> int:
        """Hand over what is new, and return how many points some tracker took; `failures` has trackers that raised.

        Raises StorageError, CorruptionError, OSError.
        """
        with self._lock:
            if self._view is None:
                self._open()
            self._feed.advance()
            points, given = self._measures.points, set[int]()
            for name in self._names:
                if name not in self.failures:
                    given |= self._hand(name, points)
            if points:
                write_file(self.folder / POSITIONS, msgspec.json.encode(self._taken))
            points.clear()
            return len(given)

    async def follow(self, warn: Callable[[str], None], every: float = EVERY) -> None:
        """Hand over what is new each `every` seconds; a tracker that fails is reported, and the run continues."""
        try:
            while len(self.failures) < len(self._names):
                await asyncio.sleep(every)
                await _in_daemon(self.advance)
                self._tell(warn)
        except Exception as error:  # the ledger or the file of positions cannot be used
            warn(f"run.report_to: no more figures are reported: {_text(error)}")

    def finish(self, warn: Callable[[str], None], patience: float = PATIENCE) -> None:
        """Hand over the rest, and close, in at most `patience` seconds; a tracker that fails or hangs is reported."""
        thread = threading.Thread(target=self._finish, args=(warn,), daemon=True)
        thread.start()
        thread.join(patience)
        if thread.is_alive():
            command = f"{program()} report {self._run.path}" + "".join(f" --to {name}" for name in self._names)
            warn(f"run.report_to: a tracker took more than {patience:g} s; what it lacks is written by: {command}")

    def close(self) -> None:
        """Close the trackers and the ledger; `failures` has trackers that raised."""
        with self._lock:
            for name, tracker in self._trackers.items():
                try:
                    tracker.close()
                except Exception as error:  # trackers raise exceptions of any type
                    self.failures.setdefault(name, _text(error))
            self._trackers = {}
            if self._view is not None:
                self._view.close()

    def _open(self) -> None:
        view = LedgerView(self._run.ledger)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._taken = _positions(self.folder / POSITIONS)
        except BaseException:
            view.close()
            raise
        self._measures, self._view = Measures(), view
        self._feed = RowFeed(view, [self._measures])

    def _hand(self, name: str, points: Sequence[VersionFigures]) -> set[int]:
        """Give a tracker the points that it lacks, and return the rows of those that it took."""
        given = set[int]()
        try:
            if name not in self._trackers:
                self._trackers[name] = self._opened(name)
            for point in points:
                if point.row_id > self._taken.get(name, 0):
                    self._trackers[name].log(point)
                    self._taken[name] = point.row_id
                    given.add(point.row_id)
        except Exception as error:  # trackers raise exceptions of any type
            self.failures[name] = _text(error)
        return given

    def _opened(self, name: str) -> Tracker:
        trackers = importlib.import_module("barnraise.account.tracking.trackers")
        return cast("Tracker", trackers.CLASSES[name](self._run.path.name, self.folder / name))

    def _finish(self, warn: Callable[[str], None]) -> None:
        try:
            try:
                self.advance()
            finally:
                self.close()
        except Exception as error:  # the ledger or the file of positions cannot be used
            warn(f"run.report_to: the last figures are not reported: {_text(error)}")
        self._tell(warn)

    def _tell(self, warn: Callable[[str], None]) -> None:
        """Report each failure once."""
        for name, why in list(self.failures.items())[self._told :]:
            command = f"{program()} report {self._run.path} --to {name}"
            warn(f"run.report_to: {name} gets no more figures: {why}; what it lacks is written by: {command}")
        self._told = len(self.failures)


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


def _text(error: Exception) -> str:
    return printable(str(error) or type(error).__name__)
