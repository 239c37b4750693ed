"""What is planned for the controller's own process: a disk that is slow or full, a clock that jumps, its death.

A full disk is the kernel's word: while it lasts no write to a file gets through (RLIMIT_FSIZE), so SQLite, payloads and
checkpoints fail as they do where there is no room. A death is SIGKILL, and one after a number of decisions falls
between their commit and all that follows from it.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from barnraise.config.faults import ClockJump, Fault, FullDisk, KillController, Planned, SlowDisk
from barnraise.core.errors import InputError
from barnraise.faults.host_resources import HostResources
from barnraise.faults.supervisor import Revive, kept
from barnraise.ledger import Checkpoints, Ledger, RunDirectory
from barnraise.ledger.checkpoints import Unfinished
from barnraise.ledger.decisions import Decision
from barnraise.ledger.segments import PayloadBytes


class HostFaults(HostResources):
    """The ground of a controller that `planned` faults befall. InputError for a death without a supervisor."""

    def __init__(self, planned: Sequence[Planned], run: RunDirectory) -> None:
        self.planned, self.run = planned, run
        self.slow: list[float] = []
        self.full = 0
        self._usual = resource.getrlimit(resource.RLIMIT_FSIZE)
        self._lowered, self._lock = 0, threading.Lock()  # threads that write while the limit is low
        self.ahead = 0.0
        self.supervisor = kept()
        self.played = list(self.supervisor.played) if self.supervisor else []  # places in the list
        deaths = [place for place, plan in enumerate(planned) if isinstance(plan.fault, KillController)]
        if deaths and self.supervisor is None:
            raise InputError(
                "kill_controller ends the process that plays it: let a command of its own do that, `barnraise train` "
                "or `barnraise lab`, or leave it out of the run file's faults"
            )
        self._to_come = [place for place in deaths if place not in self.played]

    def ledger(self, run: RunDirectory) -> Ledger:
        return _TroubledLedger(self, run)

    def checkpoints(self, run: RunDirectory) -> Checkpoints:
        return _TroubledCheckpoints(self, run.checkpoints)

    def clock(self, start: float) -> Callable[[], float]:
        usual = super().clock(start)
        return lambda: usual() + self.ahead

    def opened(self, decisions: int) -> None:
        """So many there are as the run begins or goes on: a death that was due by then is not died again."""
        times = [self.planned[place].when.decisions for place in self._to_come]
        self._to_come = [place for place, at in zip(self._to_come, times, strict=True) if at is None or at > decisions]

    def committed(self, decisions: int) -> None:
        """They are durable, and nothing else of their batch is done: the one moment for a death between the two."""
        for place in self._to_come:
            at = self.planned[place].when.decisions
            if at is not None and at <= decisions:
                self._die(place)

    def was_played(self, plan: Planned) -> bool:
        """Whether an earlier process of this command played it, or a death that was due as this one began."""
        place = self.planned.index(plan)
        return place in self.played or (isinstance(plan.fault, KillController) and place not in self._to_come)

    def was_missed(self, plan: Planned) -> bool:
        """Whether an earlier process of this command died before it could play it."""
        return bool(self.supervisor and self.supervisor.played) and not self.was_played(plan)

    def play(self, plan: Planned) -> bool:
        """Play it now; False when it is not about this process."""
        self.played.append(self.planned.index(plan))
        method = _PLAY.get(type(plan.fault))
        if method is not None:
            method(self, plan, plan.fault)
        return method is not None

    @contextlib.contextmanager
    def at_disk(self) -> Iterator[None]:
        """What the disk does now with what is written in the body. For threads that may wait."""
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
        """The limit is the process's: the first thread to need it low lowers it, the last one raises it again."""
        with self._lock:
            self._lowered += change
            usual, most = self._usual
            resource.setrlimit(resource.RLIMIT_FSIZE, (0 if self._lowered else usual, most))

    def _die(self, place: int) -> None:
        fault = self.planned[place].fault
        assert self.supervisor is not None
        assert isinstance(fault, KillController)
        self.supervisor.die(Revive(str(self.run.path), fault.seconds, (*self.played, place)))

    def _kill_controller(self, plan: Planned, fault: KillController) -> None:
        self._die(self.planned.index(plan))

    def _slow_disk(self, plan: Planned, fault: SlowDisk) -> None:
        self.slow.append(fault.by_seconds)
        asyncio.get_running_loop().call_later(fault.seconds, self.slow.remove, fault.by_seconds)

    def _full_disk(self, plan: Planned, fault: FullDisk) -> None:
        self.full += 1
        asyncio.get_running_loop().call_later(fault.seconds, self._room)

    def _room(self) -> None:
        self.full -= 1

    def _clock_jump(self, plan: Planned, fault: ClockJump) -> None:
        self.ahead += fault.by_seconds


class _TroubledLedger(Ledger):
    """On a disk that may be slow or full; the process may die as it has committed."""

    def __init__(self, faults: HostFaults, run: RunDirectory) -> None:
        super().__init__(run.ledger, run.segments, run=run.path.name)
        self.faults = faults
        faults.opened(self.last_id)

    def commit(self, decisions: Sequence[Decision], payloads: Mapping[int, PayloadBytes] | None = None) -> int:
        with self.faults.at_disk():
            last = super().commit(decisions, payloads)
        self.faults.committed(last)
        return last


class _TroubledCheckpoints(Checkpoints):
    """On a disk that may be slow or full."""

    def __init__(self, faults: HostFaults, directory: Path) -> None:
        super().__init__(directory)
        self.faults = faults

    def begin(self, version: int, tensors: Mapping[str, Mapping[str, Any]]) -> Unfinished:
        with self.faults.at_disk():
            return super().begin(version, tensors)


_PLAY: dict[type[Fault], Callable[[HostFaults, Planned, Any], None]] = {
    ClockJump: HostFaults._clock_jump,
    FullDisk: HostFaults._full_disk,
    KillController: HostFaults._kill_controller,
    SlowDisk: HostFaults._slow_disk,
}
