"""Worker processes on this machine as a target of faults: signals, and new workers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from functools import partial
from typing import Protocol

from barnraise.config.faults import Hang, Join, Kill, Preempt
from barnraise.config.trial_sections import WorkerSection
from barnraise.faults.target import FaultTarget


class Workers(Protocol):
    """Worker processes by name, as `assembly` starts them."""

    pids: dict[str, int]

    def join(self, worker: WorkerSection) -> None:
        """Start a worker that was not there before."""

    def give_up(self, name: str, reason: str) -> None:
        """Do not start the worker again once its process ends."""


class WorkerProcesses(FaultTarget):
    """Plays faults on the processes of `workers`."""

    def __init__(self, workers: Workers) -> None:
        self.workers = workers
        self._hanging: dict[str, tuple[int, float]] = {}  # which process, until when
        self._to_hang: dict[str, float] = {}  # for how long, of those whose process is still to start

    def has_process(self, name: str) -> None:
        """Play faults that were due before the worker had a process."""
        if (seconds := self._to_hang.pop(name, None)) is not None:
            self._stop(name, seconds)

    def wake_all(self) -> None:
        """Continue every process that hangs, so that it can end."""
        self._to_hang.clear()
        for name, hanging in list(self._hanging.items()):
            self._wake(name, hanging)

    def kill(self, fault: Kill, rng: random.Random) -> None:
        for name in fault.nodes:
            self.workers.give_up(name, "killed, as the run file's faults say")
            self._signal(name, signal.SIGKILL)

    def join(self, fault: Join, rng: random.Random) -> None:
        self.workers.join(fault.join)

    def hang(self, fault: Hang, rng: random.Random) -> None:
        for name in fault.nodes:
            if name in self.workers.pids:
                self._stop(name, fault.seconds)
            else:
                self._to_hang[name] = max(fault.seconds, self._to_hang.get(name, 0.0))

    def _stop(self, name: str, seconds: float) -> None:
        """Stop the process for some seconds.

        Where several hangs overlap, the one that ends last counts.
        """
        pid, until = self.workers.pids[name], asyncio.get_running_loop().time() + seconds
        before = self._hanging.get(name, (pid, 0.0))
        if before[0] == pid and before[1] >= until:
            return
        self._hanging[name] = pid, until
        self._signal(name, signal.SIGSTOP)
        self.after(seconds, partial(self._wake, name, (pid, until)))

    def _wake(self, name: str, hanging: tuple[int, float]) -> None:
        if self._hanging.get(name) != hanging:
            return
        del self._hanging[name]
        if self.workers.pids.get(name) == hanging[0]:
            self._signal(name, signal.SIGCONT)

    def preempt(self, fault: Preempt, rng: random.Random) -> None:
        for name in fault.nodes:
            pid = self.workers.pids.get(name)
            self.workers.give_up(name, "preempted, as the run file's faults say")
            self._signal(name, signal.SIGTERM)
            self.after(fault.seconds, partial(self._end, name, pid))

    def _end(self, name: str, pid: int | None) -> None:
        """Kill the process whose notice is over, if it still runs."""
        if pid is not None and self.workers.pids.get(name) == pid:
            self._signal(name, signal.SIGKILL)

    def _signal(self, name: str, number: signal.Signals) -> None:
        if name in self.workers.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.workers.pids[name], number)
