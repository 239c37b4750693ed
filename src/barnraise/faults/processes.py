"""The planned faults of a run with workers of its own, played on processes: signals, and new workers; what befalls the
controller's own process is in `host`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from barnraise.config.faults import Fault, Hang, Join, Kill, KillController, Planned, Preempt
from barnraise.config.trial_sections import WorkerSection
from barnraise.faults.host import HostFaults


class Workers(Protocol):
    """Processes by name, and whether they are to be started again should they end."""

    pids: dict[str, int]

    def join(self, worker: WorkerSection) -> None:
        """Start one that was not there before."""

    def give_up(self, name: str, reason: str) -> None:
        """It is to end, and stays down."""


class LocalFaults:
    """Plays `planned` on `workers`, each at its share of the tokens or at its second of the run's clock."""

    def __init__(self, planned: Sequence[Planned], workers: Workers, note: Callable[[str], None]) -> None:
        self.waiting, self.workers, self.note = list(planned), workers, note
        self.host: HostFaults | None = None
        self._hanging: dict[str, tuple[int, float]] = {}  # which process, until when
        self._to_hang: dict[str, float] = {}  # for how long, of those whose process is still to start

    def _due(self, progress: float, seconds: float) -> list[Planned]:
        """Take what is due, in the order of its times; of what has the same time the controller's death is the last."""
        found = [plan for plan in self.waiting if _is_due(plan, progress, seconds)]
        self.waiting = [plan for plan in self.waiting if not _is_due(plan, progress, seconds)]
        return sorted(
            found,
            key=lambda plan: (plan.when.share or 0.0, plan.when.seconds or 0.0, isinstance(plan.fault, KillController)),
        )

    def play(self, progress: float, seconds: float) -> None:
        """Play what is due at a share of the token budget, and so many seconds into the run."""
        for plan in self._due(progress, seconds):
            if self.host is not None and self.host.was_played(plan):
                continue
            for name in plan.nodes:
                self.note(f"fault: {plan.name} worker '{name}' at {plan.when}")
            if not plan.nodes and not isinstance(plan.fault, Join):
                self.note(f"fault: {plan.name} at {plan.when}")
            if self.host is None or not self.host.play(plan):
                self.play_one(plan)

    def play_one(self, plan: Planned) -> None:
        """Play it now."""
        _PLAY[type(plan.fault)](self, plan.fault)

    def skip(self, progress: float, seconds: float) -> tuple[set[str], list[WorkerSection]]:
        """A resumed run plays nothing twice: who is dead by now, and who has joined. What was due by now was played,
        but for what a planned death came before."""
        due = self._due(progress, seconds)
        missed = [plan for plan in due if self.host is not None and self.host.was_missed(plan)]
        self.waiting += missed
        played = [plan.fault for plan in due if plan not in missed]
        dead = {name for fault in played if isinstance(fault, Kill | Preempt) for name in fault.nodes}
        return dead, [fault.join for fault in played if isinstance(fault, Join)]

    def has_process(self, name: str) -> None:
        """It has one now: what was to befall it before does."""
        if (seconds := self._to_hang.pop(name, None)) is not None:
            self._stop(name, seconds)

    def wake_all(self) -> None:
        """Let go on who hangs: it is to end."""
        self._to_hang.clear()
        for name, hanging in list(self._hanging.items()):
            self._wake(name, hanging)

    def _kill(self, fault: Kill) -> None:
        for name in fault.nodes:
            self.workers.give_up(name, "killed, as the run file's faults say")
            self._signal(name, signal.SIGKILL)

    def _join(self, fault: Join) -> None:
        self.note(f"fault: worker '{fault.join.name}' joins")
        self.workers.join(fault.join)

    def _hang(self, fault: Hang) -> None:
        for name in fault.nodes:
            if name in self.workers.pids:
                self._stop(name, fault.seconds)
            else:
                self._to_hang[name] = max(fault.seconds, self._to_hang.get(name, 0.0))

    def _stop(self, name: str, seconds: float) -> None:
        """Its process stands still; of several such times the one counts that ends last."""
        loop, pid = asyncio.get_running_loop(), self.workers.pids[name]
        until, before = loop.time() + seconds, self._hanging.get(name, (pid, 0.0))
        if before[0] == pid and before[1] >= until:
            return
        self._hanging[name] = pid, until
        self._signal(name, signal.SIGSTOP)
        loop.call_at(until, self._wake, name, (pid, until))

    def _wake(self, name: str, hanging: tuple[int, float]) -> None:
        if self._hanging.get(name) != hanging:
            return
        del self._hanging[name]
        if self.workers.pids.get(name) == hanging[0]:
            self._signal(name, signal.SIGCONT)

    def _preempt(self, fault: Preempt) -> None:
        for name in fault.nodes:
            pid = self.workers.pids.get(name)
            self.workers.give_up(name, "preempted, as the run file's faults say")
            self._signal(name, signal.SIGTERM)
            asyncio.get_running_loop().call_later(fault.seconds, self._end, name, pid)

    def _end(self, name: str, pid: int | None) -> None:
        """The notice is over."""
        if pid is not None and self.workers.pids.get(name) == pid:
            self._signal(name, signal.SIGKILL)

    def _signal(self, name: str, number: signal.Signals) -> None:
        if name in self.workers.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.workers.pids[name], number)


def _is_due(plan: Planned, progress: float, seconds: float) -> bool:
    when = plan.when
    return (when.share is not None and when.share <= progress) or (when.seconds is not None and when.seconds <= seconds)


_PLAY: dict[type[Fault], Callable[[LocalFaults, Any], None]] = {
    Kill: LocalFaults._kill,
    Join: LocalFaults._join,
    Hang: LocalFaults._hang,
    Preempt: LocalFaults._preempt,
}
