"""The forkserver of local workers: one process imports torch and transformers once, then forks for each worker.

Run as `python -m barnraise.assembly.forkserver PARENT`: PARENT is the number of the process that starts it. Each line
on its standard input is a JSON order, each line on its standard output a JSON report: {"started": NAME, "pid": N},
{"ended": NAME, "code": N, "reason": TEXT}. Workers end with the forkserver, and the forkserver ends with the process
that holds its standard input. It computes nothing and never asks for a GPU: neither threads nor a device's context
survive a fork.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import sys
import traceback
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from barnraise.assembly.joining import join
from barnraise.assembly.voice import Say
from barnraise.core.errors import BarnraiseError
from barnraise.core.processes import die_with_parent
from barnraise.core.sites import OwnFiles
from barnraise.emulation.namespaces import enter
from barnraise.transport import Keys
from barnraise.trust.roles import WORKER
from barnraise.worker.building import build_executor
from barnraise.worker.imports import import_all
from barnraise.worker.machine import MakeWorker, Worker
from barnraise.worker.options import Given, Means, Outcome, Safeguards, WorkerOptions
from barnraise.worker.runtime import WorkerRuntime
from barnraise.worker.task_executor import BuildExecutor
from barnraise.worker.trustee import machine_of, preparation

REASON_BYTES = 2048
"""Longest reason that a worker gives for its end: a pipe holds that much unread."""


class Order(msgspec.Struct, frozen=True, tag=True):
    """An order to start one worker; `log` is the file of its output."""

    name: str
    log: str
    means: Means


class LocalWorker(Order, frozen=True):
    """A worker or trustee whose key the controller knows, and whose data is on this machine."""

    uri: str
    server_key: str
    keys: str  # path of its key file
    cache: str
    moments: str
    role: str = WORKER
    own: OwnFiles | None = None
    key_file: str = ""  # with the key to an encrypted run


class InvitedWorker(Order, frozen=True):
    """A worker that joins by an invite, in a network namespace: everything comes over its link."""

    namespace: str
    invite: str
    home: str
    own: OwnFiles | None = None


class End(msgspec.Struct, frozen=True, tag=True):
    """An order to end the worker of this name at once, if it exists."""

    name: str


Orders = LocalWorker | InvitedWorker


def work(order: Orders) -> Outcome:
    """Run the worker, in a process of its own, to its end."""

    def say(text: str) -> None:
        sys.stderr.write(f"{order.name}: {text}\n")

    if isinstance(order, LocalWorker):
        return asyncio.run(_work(order, say))
    enter(order.namespace)
    outcome = asyncio.run(_join(order, say))
    say(outcome.reason)
    return outcome


async def _work(order: LocalWorker, say: Say) -> Outcome:
    options = WorkerOptions(
        uri=order.uri,
        server_key=order.server_key,
        name=order.name,
        keys=Keys.load(Path(order.keys)),
        cache=Path(order.cache),
        moments=Path(order.moments),
        means=order.means,
        own=order.own,
        safeguards=Safeguards(key_file=order.key_file),
    )
    steps = preparation(order.role, Path(order.moments).with_suffix(""))
    runtime = WorkerRuntime(
        options, build=_builder(order), prepare=steps, machine=machine_of(order.role, _machine(order)), say=say
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, runtime.leave, "asked to leave (SIGTERM)")
    outcome = await runtime.run()
    say(outcome.reason)
    return outcome


async def _join(order: InvitedWorker, say: Say) -> Outcome:
    given = {name: value for name, value in vars(order.means).items() if name in Given.__annotations__}
    return await join(
        order.invite,
        say,
        name=order.name,
        home=Path(order.home),
        own=order.own,
        build=_builder(order),
        machine=_machine(order),
        **given,
    )


def _builder(order: Order) -> BuildExecutor:
    """Return the factory of the worker's executor: an honest one, or one that attacks as its means say."""
    if order.means.attack is None:
        return build_executor
    from barnraise.emulation.attacks.executor import making

    return partial(build_executor, make=making(order.means.attack, order.name))


def _machine(order: Order) -> MakeWorker:
    """Return the factory of the worker's state machine, likewise."""
    if order.means.attack is None:
        return Worker
    from barnraise.emulation.attacks.catalog import create
    from barnraise.emulation.attacks.lying import LyingWorker

    return partial(LyingWorker, create(order.means.attack), order.name)


class Child(NamedTuple):
    """A worker's process; the reason for its end can be read from `reason`."""

    name: str
    reason: int


def _fork(order: Orders) -> tuple[int, Child]:
    read, write = os.pipe()
    forkserver = os.getpid()
    pid = os.fork()
    if pid:
        os.close(write)
        os.set_blocking(read, False)
        return pid, Child(order.name, read)
    outcome = Outcome("", final=False)
    try:
        die_with_parent(forkserver)
        os.setsid()  # Ctrl-C is for the controller
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        log = os.open(order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        null = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, null), (1, log), (2, log)):
            os.dup2(source, target)
        outcome = work(order)
    except BarnraiseError as error:
        sys.stderr.write(f"error: {error}\n")
        outcome = Outcome(str(error), final=False)
    except BaseException as error:
        traceback.print_exc()
        outcome = Outcome(f"{type(error).__name__}: {error}", final=False)
    finally:
        sys.stderr.flush()
        os.write(write, outcome.reason.encode()[:REASON_BYTES])
        os._exit(0 if outcome.final else 1)


def _reason(child: Child) -> str:
    try:
        return os.read(child.reason, REASON_BYTES).decode("utf-8", "replace")
    except BlockingIOError:  # it was killed, and a process of its own lives on
        return ""
    finally:
        os.close(child.reason)


def _report(**content: object) -> None:
    sys.stdout.write(json.dumps(content) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Import, then fork on orders until standard input ends."""
    die_with_parent(int(sys.argv[1]))
    for number in (signal.SIGINT, signal.SIGTERM):  # for the controller, which tells its workers
        signal.signal(number, signal.SIG_IGN)
    import_all()
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    decoder = msgspec.json.Decoder(Orders | End)
    children: dict[int, Child] = {}
    pending = b""
    while True:
        ready, _, _ = select.select([0, wake_read], [], [])
        if wake_read in ready:
            os.read(wake_read, 4096)
            while children:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                child = children.pop(pid)
                _report(ended=child.name, code=os.waitstatus_to_exitcode(status), reason=_reason(child))
        if 0 in ready:
            data = os.read(0, 65536)
            if not data:
                return
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                order = decoder.decode(line)
                living = next((pid for pid, child in children.items() if child.name == order.name), 0)
                if isinstance(order, End):
                    if living:
                        os.kill(living, signal.SIGKILL)  # not yet waited for, so its number is not reused
                    continue
                if living:  # a resumed controller needs its report
                    _report(started=order.name, pid=living)
                    continue
                pid, child = _fork(order)
                children[pid] = child
                _report(started=order.name, pid=pid)


if __name__ == "__main__":
    main()
