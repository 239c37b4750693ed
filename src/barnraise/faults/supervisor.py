"""The supervisor of a controller that dies as its fault plan says.

The supervisor starts the command again as its child, which is the controller, and for it the helper processes of
workers and links. These processes live on when the controller is killed. After the planned time the supervisor resumes
the run. The supervisor and its helpers end when the controller ends in any other way.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn

import msgspec

from barnraise.config.faults import KillController, Planned
from barnraise.core.files import private
from barnraise.core.processes import die_with_parent
from barnraise.core.signals import INTERRUPTED, NUMBERS

VARIABLE = "BARNRAISE_KEEPER"
"""Environment variable in which a controller finds its supervisor."""

ROLES = ("workers", "links")
"""The roles of helpers."""

PATIENCE = 20.0
"""Seconds that a helper has to end."""


class Start(msgspec.Struct, frozen=True, tag=True):
    """A controller asks for a helper: its role, the module that it runs, and its log file."""

    role: str
    module: str
    log: str


class Revive(msgspec.Struct, frozen=True, tag=True):
    """A controller asks to be resumed `seconds` after its death.

    `played` are the places, in the run file's list, of all faults that were played.
    """

    run: str
    seconds: float
    played: tuple[int, ...]


class Supervised(msgspec.Struct, frozen=True):
    """A controller's view of its supervisor: descriptors, and the places of the faults that were played before.

    There are descriptors of each helper for orders and reports, and one for requests to the supervisor.
    """

    pipes: dict[str, tuple[int, int]]
    wishes: int
    played: tuple[int, ...] = ()

    def wish(self, wish: Start | Revive) -> None:
        os.write(self.wishes, msgspec.json.encode(wish) + b"\n")

    def die(self, revive: Revive) -> NoReturn:
        """Ask to be resumed, then end this process at once (SIGKILL)."""
        self.wish(revive)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("a process outlived SIGKILL")


def kept() -> Supervised | None:
    """Return this process's supervisor, or None where it has none."""
    found = os.environ.get(VARIABLE)
    return msgspec.json.decode(found, type=Supervised) if found else None


def played_before() -> tuple[int, ...]:
    """Return the places of the faults that earlier processes of this command played."""
    supervisor = kept()
    return supervisor.played if supervisor else ()


def wanted(faults: Sequence[Planned]) -> bool:
    """Return whether these faults need a supervisor that this process does not have."""
    return kept() is None and any(isinstance(plan.fault, KillController) for plan in faults)


def keep(arguments: Sequence[str], options: Sequence[str] = ()) -> int:
    """Run the command line `arguments`, then `resume` with `options` after each planned death; return the exit code."""
    supervisor = _Supervisor()
    for number in NUMBERS:
        signal.signal(number, supervisor.pass_on)
    umask = ExitStack()
    umask.enter_context(private())  # helpers write to the run directory
    try:
        while True:
            code, revive = supervisor.live(arguments)
            if revive is None or code != -signal.SIGKILL:
                return code if code >= 0 else 128 - code
            supervisor.played = revive.played
            time.sleep(revive.seconds)
            arguments = ["resume", revive.run, *options]
    finally:
        umask.close()
        supervisor.close()


class _Pipes:
    """To a helper and from it: the controller's ends, and the helper's own."""

    def __init__(self) -> None:
        self.helpers_orders, self.orders = os.pipe()
        self.reports, self.helpers_reports = os.pipe()


class _Supervisor:
    """Holds the pipes of the helpers, so that they are there for one controller after the other."""

    def __init__(self) -> None:
        self.played: tuple[int, ...] = ()
        self._pipes = {role: _Pipes() for role in ROLES}
        self._helpers: list[subprocess.Popen[bytes]] = []
        self._controller: subprocess.Popen[bytes] | None = None

    def live(self, arguments: Sequence[str]) -> tuple[int, Revive | None]:
        """Run one controller, and return its exit code, and its request for a resume if it made one."""
        wishes, ours = os.pipe()
        pipes = {role: (pipes.orders, pipes.reports) for role, pipes in self._pipes.items()}
        told = msgspec.json.encode(Supervised(pipes, ours, self.played)).decode()
        self._controller = subprocess.Popen(
            [sys.executable, "-m", "barnraise.cli.main", *arguments],
            env={**os.environ, VARIABLE: told},
            pass_fds=(*(end for ends in pipes.values() for end in ends), ours),
            preexec_fn=partial(die_with_parent, os.getpid()),
        )
        os.close(ours)
        revive = None
        with os.fdopen(wishes, "rb") as lines:
            for line in lines:
                wish = msgspec.json.decode(line, type=Start | Revive)
                if isinstance(wish, Start):
                    self._start(wish)
                else:
                    revive = wish
        return self._controller.wait(), revive

    def _start(self, wish: Start) -> None:
        pipes = self._pipes[wish.role]
        with Path(wish.log).open("wb") as log:
            helper = subprocess.Popen(
                [sys.executable, "-m", wish.module, str(os.getpid())],
                stdin=pipes.helpers_orders,
                stdout=pipes.helpers_reports,
                stderr=log,
            )
        self._helpers.append(helper)
        os.close(pipes.helpers_orders)
        os.close(pipes.helpers_reports)

    def pass_on(self, number: int, frame: FrameType | None) -> None:
        """Pass a signal on to the controller; while there is none, it ends the wait for its return."""
        if self._controller is None or self._controller.poll() is not None:
            sys.exit(INTERRUPTED)
        self._controller.send_signal(number)

    def close(self) -> None:
        """Close the pipes: a helper ends when there is no controller to give it orders."""
        for pipes in self._pipes.values():
            os.close(pipes.orders)
            os.close(pipes.reports)
        for helper in self._helpers:
            try:
                helper.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                helper.kill()
                helper.wait()
