"""Play one run of one peer in existing namespaces: its processes, from start to end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peers.measure import Counters, Result, events, summarise

from barnraise.core.errors import RunDirectoryError
from barnraise.emulation.namespaces import address
from barnraise.ledger.outcomes import AssignmentRow
from barnraise.ledger.view import LedgerView

FOLDER = Path(__file__).parent
READY_SECONDS = 240.0
"""For all workers to import, to find each other and to take their first step."""


@dataclass(frozen=True)
class Peer:
    """The program that runs in each worker's namespace, and its own options."""

    name: str
    script: str
    options: dict[str, Any]
    what: str
    trouble: str = ""  # a pattern: lines of its output that match mean that an exchange failed


@dataclass(frozen=True)
class Trial:
    """The settings that all peers share. `tokens` counts those of all workers together."""

    folder: Path  # model/ and rows.npy
    python: Path  # the interpreter of the peers' environment
    workers: int
    tokens: int
    seconds: float
    speed: float
    batch: int
    local_steps: int
    learning_rate: float
    schedule: str
    seed: int
    snapshots: int
    network: str


def run_peer(peer: Peer, trial: Trial, namespaces: list[str]) -> tuple[Result, list[tuple[float, int, Path]]]:
    """Run it until its tokens or its seconds are over: the result, and its snapshots (seconds, tokens, file)."""
    folder = trial.folder
    addresses = [address(at) for at in range(1, trial.workers + 1)]
    job = {
        "folder": str(folder), "addresses": addresses, "tokens": trial.tokens // trial.workers,
        "seconds": trial.seconds, "speed": trial.speed,
        "batch": trial.batch, "local_steps": trial.local_steps, "learning_rate": trial.learning_rate,
        "schedule": trial.schedule, "seed": trial.seed, "snapshots": trial.snapshots, "options": peer.options,
    }  # fmt: skip
    (folder / "job.json").write_text(json.dumps(job))
    outputs = [folder / f"worker{rank}.out" for rank in range(trial.workers)]
    with contextlib.ExitStack() as stack:
        counters = stack.enter_context(Counters({}))
        processes = []
        for rank, output in enumerate(outputs):
            command = [str(trial.python), str(FOLDER / peer.script), str(folder / "job.json"), str(rank)]
            processes.append(stack.enter_context(process(namespaces[rank + 1], command, output)))
            counters.pids[rank + 1] = processes[-1].pid

        def found(kind: str) -> list[list[dict[str, Any]]]:
            return [[event for event in events(output) if event["event"] == kind] for output in outputs]

        _wait(lambda: all(found("start")), READY_SECONDS, processes, outputs)
        starts = [told[0]["time"] for told in found("start")]
        start = max(starts)
        _wait(lambda: all(found("done")), start + trial.seconds - time.monotonic(), processes, outputs, strict=False)
        progress = found("progress")
        snapshots = [
            (event["time"] - start, event["tokens"] * trial.workers, folder / event["file"])
            for event in found("snapshot")[0]
        ]
        time.sleep(1.0)  # for the last sample
        ends = [[(event["time"], event["tokens"]) for event in told] for told in progress]
    result = _result(peer.name, trial, counters, starts, ends)
    if peer.trouble:
        said = [line for output in outputs for line in output.read_text("utf-8", "replace").splitlines()]
        result.failed = sum(re.search(peer.trouble, line) is not None for line in said)
    return result, snapshots


class Barnraise:
    """`serve` in the host's namespace; workers `join` when they are told to. Ends with its context."""

    def __init__(self, trial: Trial, namespaces: list[str], run_file: dict[str, Any]) -> None:
        self.trial, self.namespaces, self.folder = trial, namespaces, trial.folder
        self.path = self.folder / "barnraise.yaml"
        self.path.write_text(json.dumps(run_file))
        self.processes: list[subprocess.Popen[bytes]] = []
        self.outputs: list[Path] = []
        self._offset, self._known = float("inf"), 0
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Barnraise:
        self.counters = self._stack.enter_context(Counters({}))
        served = self.folder / "serve.out"
        command = [sys.executable, "-m", "barnraise.cli.main", "serve", str(self.path)]
        self.host = self._stack.enter_context(process(self.namespaces[0], command, served))
        self.counters.pids[0] = self.host.pid
        _wait(lambda: bool(_invite(served)), READY_SECONDS, [self.host], [served])
        self._invite = _invite(served)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def join(self) -> None:
        """One more worker starts."""
        rank = len(self.processes)
        self.outputs.append(self.folder / f"worker{rank}.out")
        command = [sys.executable, str(FOLDER / "barnraise_join.py"), str(self.trial.speed), self._invite]
        command += ["--name", f"w{rank}", "--home", str(self.folder / "home"), "--threads", "1"]
        joined = self._stack.enter_context(process(self.namespaces[rank + 1], command, self.outputs[-1]))
        self.processes.append(joined)
        self.counters.pids[rank + 1] = joined.pid

    def started(self) -> dict[str, float]:
        """When each worker took its first step; returns once all have."""
        _wait(lambda: all(map(events, self.outputs)), READY_SECONDS, self.processes, self.outputs)
        return {f"w{rank}": float(events(output)[0]["time"]) for rank, output in enumerate(self.outputs)}

    def view(self) -> LedgerView:
        return LedgerView(next((self.folder / "runs").glob("*/ledger.sqlite")))

    def assignments(self) -> list[AssignmentRow]:
        """Return the assignments that the controller has accepted so far."""
        with self.view() as view:
            assignments = [row for row in view.assignments() if row.outcome == "accepted"]
        if len(assignments) > self._known:
            self._known = len(assignments)
            self._offset = min(self._offset, time.monotonic() - max(row.stop or 0.0 for row in assignments))
        return assignments

    @property
    def offset(self) -> float:
        """Seconds from the ledger's clock to this machine's: the least delay with which this process saw a row."""
        return self._offset


def run_barnraise(name: str, trial: Trial, namespaces: list[str], run_file: dict[str, Any]) -> Result:
    """barnraise itself, all workers at once."""
    with Barnraise(trial, namespaces, run_file) as run:
        for _ in range(trial.workers):
            run.join()
        starts = run.started()
        start = max(starts.values())
        assignments: list[AssignmentRow] = []
        took = 0.0
        while time.monotonic() < start + trial.seconds and run.host.poll() is None:
            time.sleep(max(0.25, 50 * took))  # the whole ledger is read: 2% of a core at most
            with contextlib.suppress(RunDirectoryError):
                began = time.monotonic()
                assignments = run.assignments()
                took = time.monotonic() - began
        time.sleep(1.0)
        offset, counters = run.offset, run.counters
        with run.view() as view:
            curve = [(point.seconds + offset - start, point.tokens, point.loss) for point in view.losses()]
    ends: list[list[tuple[float, int]]] = []
    for node in starts:
        own = sorted((row.stop or 0.0, row.tokens) for row in assignments if row.node == node)
        ends.append([(stop + offset, sum(tokens for _, tokens in own[: at + 1])) for at, (stop, _) in enumerate(own)])
    result = _result(name, trial, counters, list(starts.values()), ends)
    result.curve = curve
    return result


def _result(
    name: str, trial: Trial, counters: Counters, starts: list[float], ends: list[list[tuple[float, int]]]
) -> Result:
    """Return the result. A worker's rate counts from its start to its last exchange: later work is not shared yet."""
    lasts = [(began, *told[-1]) for began, told in zip(starts, ends, strict=True) if told]
    start = max(starts)
    stop = max((time for _, time, _ in lasts), default=start)
    return summarise(
        counters, start, stop, workers=trial.workers, tokens=sum(tokens for _, _, tokens in lasts), speed=trial.speed,
        rate=sum(tokens / (time - began) for began, time, tokens in lasts),
        peer=name, network=trial.network, seed=trial.seed,
    )  # fmt: skip


@contextlib.contextmanager
def process(namespace: str, command: list[str], output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a namespace, with all that it starts in a group of its own; killed at the end."""
    with output.open("wb") as file:
        running = subprocess.Popen(
            ["ip", "netns", "exec", namespace, *command],
            stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
    try:
        yield running
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def _wait(
    ready: Callable[[], bool],
    seconds: float,
    processes: list[subprocess.Popen[bytes]],
    outputs: list[Path],
    *,
    strict: bool = True,
) -> None:
    """Until `ready`, or (not `strict`) the seconds are over. RuntimeError when a process ends before."""
    deadline = time.monotonic() + seconds
    while not ready():
        for process, output in zip(processes, outputs, strict=True):
            if process.poll() is not None:
                raise RuntimeError(f"a process ended with code {process.returncode}:\n{_tail(output)}")
        if time.monotonic() > deadline:
            if not strict:
                return
            raise RuntimeError(f"not ready after {seconds:g} s:\n" + "\n".join(map(_tail, outputs)))
        time.sleep(0.25)


def _invite(output: Path) -> str:
    found = re.search(r"barnraise join '([^']+)'", output.read_text("utf-8", "replace"))
    return found[1] if found else ""


def _tail(output: Path, lines: int = 8) -> str:
    return "\n".join(f"  {line[:300]}" for line in output.read_text("utf-8", "replace").splitlines()[-lines:])
