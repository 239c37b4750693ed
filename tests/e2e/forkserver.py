"""A forkserver for the barnraise processes of tests: it imports the libraries once, each command is a fork of it.

`python tests/e2e/forkserver.py FD` serves the socket FD. Each message there is a JSON command: `arguments`, `cwd`,
`environment` and the files of its output. The answer is {"pid": N}; when the process has ended, {"pid": N, "code": C}
follows. A process that tests start so differs from `python -m barnraise.cli.main` in the imports alone: they would take
7 s of CPU time in each. It starts no thread, and its processes are killed when it ends.

The forkserver of local workers, which such a process may start, imports the same. So each process has a `Spare` fork of
itself, which becomes that forkserver when it is started.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from barnraise.core.processes import die_with_parent

MODULES = (
    "matplotlib.pyplot",
    "scipy.optimize",
    "transformers.models.gpt2.modeling_gpt2",
    "transformers.models.gpt_neo.modeling_gpt_neo",
    "barnraise.assembly.joining",
    "barnraise.assembly.session",
    "barnraise.assembly.standby",
    "barnraise.worker.runtime",
)
"""Modules that most of the commands import, beside those of a worker."""

MOST_BYTES = 1 << 20
"""Longest message."""


class Forkserver:
    """The side of the tests: starts processes, and knows how those ended."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, __file__, str(theirs.fileno())]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
        self._socket = ours
        self.codes: dict[int, int] = {}

    def start(self, arguments: list[str], cwd: Path, environment: Mapping[str, str], out: Path, err: Path) -> Forked:
        """Start `barnraise` with these arguments, in `cwd`."""
        command = {
            "arguments": arguments,
            "cwd": str(cwd),
            "environment": dict(environment),
            "out": str(out),
            "err": str(err),
        }
        self._socket.send(json.dumps(command).encode())
        while "code" in (answer := self._receive()):
            pass
        return Forked(self, answer["pid"])

    def look(self) -> None:
        """Take in the ends of processes."""
        while select.select([self._socket], [], [], 0.0)[0]:
            self._receive()

    def _receive(self) -> dict[str, int]:
        data = self._socket.recv(MOST_BYTES)
        assert data, f"the forkserver of the tests ended with {self._process.wait()}"
        answer: dict[str, int] = json.loads(data)
        if "code" in answer:
            self.codes[answer["pid"]] = answer["code"]
        return answer


class Forked:
    """A process of the forkserver, with that part of the interface of `subprocess.Popen` which the tests use."""

    def __init__(self, forkserver: Forkserver, pid: int) -> None:
        self._forkserver, self.pid = forkserver, pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while the process runs."""
        if self.returncode is None:
            self._forkserver.look()
            self.returncode = self._forkserver.codes.pop(self.pid, None)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once the process has ended; subprocess.TimeoutExpired after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(0.02)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


@cache
def forkserver() -> Forkserver:
    """Return the forkserver of this process, which is started at the first call."""
    return Forkserver()


def serve(control: socket.socket) -> dict[str, Any]:
    """Fork for each command until the socket is closed; return the command in the process that is to do it."""
    me = os.getpid()
    wake, woken = os.pipe()
    for descriptor in (wake, woken):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from the terminal; the tests end what they started
    num_children = 0
    while True:
        ready, _, _ = select.select([control, wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
            while num_children:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                num_children -= 1
                control.send(json.dumps({"pid": pid, "code": os.waitstatus_to_exitcode(status)}).encode())
        if control in ready:
            data = control.recv(MOST_BYTES)
            if not data:
                sys.exit()
            pid = os.fork()
            if pid:
                num_children += 1
                control.send(json.dumps({"pid": pid}).encode())
                continue
            die_with_parent(me)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for descriptor in (wake, woken, control.detach()):
                os.close(descriptor)
            command: dict[str, Any] = json.loads(data)
            return command


def become(command: dict[str, Any]) -> None:
    """Make this process the one that the command describes."""
    for path, target in ((command["out"], 1), (command["err"], 2)):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.chdir(command["cwd"])
    os.environ.clear()
    os.environ.update(command["environment"])
    sys.argv[1:] = command["arguments"]
    sys.path[0] = command["cwd"]  # as with `python -m`


WORKERS = "barnraise.assembly.forkserver"
"""The module of the forkserver of local workers."""


class Spare:
    """A fork of this process that waits to become the forkserver of local workers; it is killed with this process.

    It replaces the exec of a process with pipes or files of its own, and is a child like any other.
    """

    def __init__(self) -> None:
        self._socket, waiting = socket.socketpair()
        me = os.getpid()
        self.pid: int | None = os.fork()
        if self.pid:
            waiting.close()
            return
        self._socket.close()
        die_with_parent(me)
        data, descriptors, _, _ = socket.recv_fds(waiting, MOST_BYTES, 3)
        if not data:
            os._exit(0)
        for target, descriptor in enumerate(descriptors):
            os.dup2(descriptor, target)
            os.close(descriptor)
        waiting.close()
        started: dict[str, Any] = json.loads(data)
        os.environ.clear()
        os.environ.update(started["environment"])
        os.umask(started["umask"])
        sys.argv[1:] = started["arguments"]
        runpy.run_module(WORKERS, run_name="__main__", alter_sys=True)
        sys.exit()

    def become(self, arguments: list[str], descriptors: tuple[int, int, int]) -> int:
        """Have it become the forkserver with these arguments and standard streams; return its process number."""
        os.umask(umask := os.umask(0))
        message = {"environment": dict(os.environ), "umask": umask, "arguments": arguments}
        socket.send_fds(self._socket, [json.dumps(message).encode()], descriptors)
        self._socket.close()
        assert self.pid
        pid, self.pid = self.pid, None
        return pid


def use_spare(spare: Spare) -> None:
    """Have `subprocess` use the spare process where it would execute the module of the forkserver of workers."""
    execute = subprocess.Popen._execute_child  # type: ignore[attr-defined]

    def start(popen: Any, arguments: Any, *rest: Any) -> None:
        streams = rest[9:15]  # standard input, output and error: each a descriptor to read and one to write
        theirs = (streams[0], streams[3], streams[5])
        if spare.pid is None or list(arguments)[1:3] != ["-m", WORKERS] or -1 in theirs:
            execute(popen, arguments, *rest)
            return
        popen.pid, popen._child_created = spare.become(list(arguments)[3:], theirs), True
        popen._close_pipe_fds(*streams)

    subprocess.Popen._execute_child = start  # type: ignore[attr-defined]


def main() -> None:
    """Import, serve, and in each fork do the command."""
    from barnraise.worker.imports import import_all

    kept = dict(os.environ)
    import_all()
    for name in MODULES:
        __import__(name)
    os.environ.clear()
    os.environ.update(kept)
    assert len(os.listdir("/proc/self/task")) == 1, "threads do not survive a fork"
    gc.freeze()
    become(serve(socket.socket(fileno=int(sys.argv[1]))))
    use_spare(Spare())
    runpy.run_module("barnraise.cli.main", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
