"""The controller's own process as a target of faults: its disk, its clock and its death.

While the disk is full, the kernel refuses each write to a file (RLIMIT_FSIZE), so SQLite, payloads and checkpoints fail
as they do where there is no room. A death is SIGKILL; one after a number of decisions comes between their commit and
everything that follows from it.
"""

from __future__ import annotations

import contextlib
import random
import resource
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from barnraise.config.faults import ClockJump, FullDisk, KillController, SlowDisk
from barnraise.core.errors import InputError
from barnraise.faults.schedule import FaultSchedule
from barnraise.faults.supervisor import Revive, kept, wanted
from barnraise.faults.target import FaultTarget
from barnraise.ledger import Checkpoints, Ledger, RunDirectory
from barnraise.ledger.checkpoints import Unfinished
from barnraise.ledger.decisions import Decision
from barnraise.ledger.segments import PayloadBytes


class HostResources:
    """The disk and the clock of this machine, as a controller uses them."""

    def ledger(self, run: RunDirectory) -> Ledger:
        """Open the run's ledger."""
        return Ledger(run.ledger, run.segments, run=run.path.name)

    def checkpoints(self, run: RunDirectory) -> Checkpoints:
        """Return the run's checkpoints."""
        return Checkpoints(run.checkpoints)

    def clock(self, start: float) -> Callable[[], float]:
        """Return a function that gives the run's seconds, beginning with `start`."""
        began = time.monotonic()
        return lambda: start + time.monotonic() - began


class FaultyHost(HostResources, FaultTarget):
    """The disk, clock and process of a controller that plays `schedule`.

    Raises InputError for a death without a supervisor.
    """

    def __init__(self, schedule: FaultSchedule, run: RunDirectory) -> None:
        self.schedule, self.run, self.supervisor = schedule, run, kept()
        self.slow: list[float] = []
        self.full = 0
        self._usual = resource.getrlimit(resource.RLIMIT_FSIZE)
        self._lowered, self._lock = 0, threading.Lock()  # threads that write while the limit is low
        self.ahead = 0.0
        if wanted(schedule.plans):
            raise InputError(
                "kill_controller ends the process that plays it: let a command of its own do that, `barnraise train` "
                "or `barnraise lab`, or leave it out of the run file's faults"
            )

    def ledger(self, run: RunDirectory) -> Ledger:
        return _FaultyLedger(self, run)

    def checkpoints(self, run: RunDirectory) -> Checkpoints:
        return _FaultyCheckpoints(self, run.checkpoints)

    def clock(self, start: float) -> Callable[[], float]:
        usual = super().clock(start)
        return lambda: usual() + self.ahead

    def committed(self, decisions: int) -> None:
        """Die if the plan says so: this many decisions are durable, and nothing else of their batch is done."""
        for plan in self.schedule.due(decisions=decisions):
            self.play(plan)

    @contextlib.contextmanager
    def at_disk(self) -> Iterator[None]:
        """Let the body write to the disk in its present state: with a delay, or in vain.

        Blocks the thread.
        """
        time.sleep(sum(self.slow))
        if not self.full:
            yield
            return
        self._lower(1)
        try:
            yield
        finally:
            self._lower(-1)

    def _lower(self, change: int) -> None:
        """Lower the process's limit for the first thread that needs it low, raise it again after the last one."""
        with self._lock:
            self._lowered += change
            usual, most = self._usual
            resource.setrlimit(resource.RLIMIT_FSIZE, (0 if self._lowered else usual, most))

    def slow_disk(self, fault: SlowDisk, rng: random.Random) -> None:
        self.slow.append(fault.by_seconds)
        self.after(fault.seconds, partial(self.slow.remove, fault.by_seconds))

    def full_disk(self, fault: FullDisk, rng: random.Random) -> None:
        self.full += 1
        self.after(fault.seconds, self._room)

    def _room(self) -> None:
        self.full -= 1

    def clock_jump(self, fault: ClockJump, rng: random.Random) -> None:
        self.ahead += fault.by_seconds

    def kill_controller(self, fault: KillController, rng: random.Random) -> None:
        assert self.supervisor is not None
        self.supervisor.die(Revive(str(self.run.path), fault.seconds, tuple(self.schedule.played)))


class _FaultyLedger(Ledger):
    """A ledger on a disk that may be slow or full.

    The process may die after a commit.
    """

    def __init__(self, host: FaultyHost, run: RunDirectory) -> None:
        super().__init__(run.ledger, run.segments, run=run.path.name)
        self.host = host
        host.schedule.skip(decisions=self.last_id)  # deaths that were due by then are over

    def commit(self, decisions: Sequence[Decision], payloads: Mapping[int, PayloadBytes] | None = None) -> int:
        with self.host.at_disk():
            last = super().commit(decisions, payloads)
        self.host.committed(last)
        return last


class _FaultyCheckpoints(Checkpoints):
    """Checkpoints on a disk that may be slow or full."""

    def __init__(self, host: FaultyHost, directory: Path) -> None:
        super().__init__(directory)
        self.host = host

    def begin(self, version: int, tensors: Mapping[str, Mapping[str, Any]]) -> Unfinished:
        with self.host.at_disk():
            return super().begin(version, tensors)
