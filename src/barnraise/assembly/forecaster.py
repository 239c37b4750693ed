"""The forecast of a run for a page that stays open: made now and then by a process of low priority.

Run as `python -m barnraise.assembly.forecaster PARENT RUN_DIR`: PARENT is the number of the process that starts it. It
prints one line of JSON and ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import BarnraiseError
from barnraise.core.processes import die_with_parent
from barnraise.ledger import RunDirectory

COST = 0.005
"""Share of one core that forecasts may take."""

SOONEST, PATIENCE = 20.0, 120.0
"""Seconds between two forecasts at least, and after which one is given up."""

NICENESS = 19


class KeptForecast(msgspec.Struct, frozen=True):
    """A forecast, or the reason why there is none; all times are on the run's clock, None: the run does not end.

    `cost` are the seconds of one core that it took.
    """

    cost: float
    problem: str = ""
    now: float = 0.0
    at: float | None = None
    low: float | None = None
    high: float | None = None
    tokens: int = 0
    budget: int = 0


class Forecaster:
    """Keeps the forecast of a run up to date; any thread may call it.

    Each takes a process of its own, and the next follows after 200 times the core's seconds that the last one took.
    """

    def __init__(self, run: RunDirectory, every: float = SOONEST) -> None:
        """Nothing is started before the first call of `latest`. `every` are seconds between forecasts, at least."""
        self._run, self._every = run, every
        self._newest: KeptForecast | None = None
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._wanted = threading.Event()

    def latest(self) -> KeptForecast | None:
        """Return the newest forecast, None before the first. Does not wait.

        The next one begins once it is due and a caller has asked since the last.
        """
        self._wanted.set()
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._work, name="forecaster", daemon=True)
                self._thread.start()
        return self._newest

    def close(self) -> None:
        """End the work; a process that runs is killed."""
        self._closed.set()
        self._wanted.set()
        with self._lock:
            if self._process is not None:
                self._process.kill()

    def _work(self) -> None:
        while not self._closed.is_set():
            self._wanted.wait()
            self._wanted.clear()
            began = time.monotonic()
            made = self._made()
            if made is None:
                made = KeptForecast(time.monotonic() - began, "the process of the forecast failed")
            self._newest = made
            self._closed.wait(max(self._every, made.cost / COST))

    def _made(self) -> KeptForecast | None:
        """Have a process make a forecast; None when it fails."""
        command = [sys.executable, "-m", __name__, str(os.getpid()), str(self._run.path)]
        try:
            with self._lock:
                if self._closed.is_set():
                    return None
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
                )
            try:
                out, _ = self._process.communicate(timeout=PATIENCE)
            finally:
                self._process.kill()
                self._process.wait()
            return msgspec.json.decode(out, type=KeptForecast)
        except (OSError, subprocess.SubprocessError, *MALFORMED):
            return None


def made(run: Path, used: Callable[[], float] = time.process_time) -> KeptForecast:
    """Return the forecast of the run in a folder, or why there is none."""
    from barnraise.assembly.forecasting import brief

    try:
        found = brief(RunDirectory.open(run))
    except BarnraiseError as error:
        return KeptForecast(used(), str(error))
    return KeptForecast(
        cost=used(),
        now=found.now,
        at=found.at,
        low=found.low,
        high=found.high,
        tokens=found.tokens,
        budget=found.budget,
    )


def main() -> None:
    """Make one forecast, as the arguments say."""
    die_with_parent(int(sys.argv[1]))
    os.nice(NICENESS)
    sys.stdout.buffer.write(msgspec.json.encode(made(Path(sys.argv[2]))))  # infinite times become null


if __name__ == "__main__":
    main()
