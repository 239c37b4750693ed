"""Measure how long a standby needs to replace a dead controller, and whether acknowledged work is lost.

A small model on loopback: `barnraise serve`, two workers, one standby; all real processes. The benchmark kills the
controller with kill -9. When its standby has taken over, another standby follows that one, and so on. Times begin at
the kill. They end at the first contribution that the new controller accepts, at its first version (the next step of the
fleet, which other systems call recovery), when each worker has had one contribution accepted, and at the first
acknowledgement that a worker gets from it. With durability standby an acknowledgement waits for the next standby, which
is started when each worker has had one accepted, or for controller.standby_patience. Workers write down what was
acknowledged to them, before they forget it: at the end all of that must be in the last controller's ledger, with the
same bytes. With durability local the last moments before a kill may be missing there. The first line that is printed
says whether the machine was idle.

    python benchmarks/failover.py [--quick] [--times N] [--lease S] [--durability local|standby] [--patience S]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import _machine

BARNRAISE = [sys.executable, "-m", "barnraise.cli.main"]

WORKERS = ("north", "south")

FIRST, STEP, EACH = "first contribution", "next step of the fleet", "one of each worker"
"""The events after a kill of the controller that the benchmark measures."""

WORKER = """
import hashlib
import sys
import time

import barnraise
from barnraise.worker import actions, runtime

invite, name, home, log = sys.argv[1:]
settle = runtime._ACTIONS[actions.Settle]
acknowledged = open(log, "a", buffering=1)

def told(self, action):
    if action.accepted:
        payload = self.executor.payloads[action.assignment].data
        digest = hashlib.sha256(payload).hexdigest()
        acknowledged.write(f"{action.assignment} {digest} {time.monotonic()}\\n")
    settle(self, action)

runtime._ACTIONS[actions.Settle] = told
barnraise.join(open(invite).read(), name=name, home=home, threads=1, say=print)
"""


def wait_for(found: Callable[[], Any], what: str, seconds: float = 120.0) -> Any:
    """Wait for the first true value of `found` and return it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := found():
            return value
        time.sleep(0.01)
    raise SystemExit(f"not in {seconds:g} s: {what}")


def query(run: Path, text: str, *values: object) -> list[tuple[Any, ...]]:
    """Rows of the ledger of a run that works."""
    try:
        with closing(sqlite3.connect(f"{(run / 'ledger.sqlite').as_uri()}?mode=ro", uri=True)) as connection:
            return connection.execute(text, values).fetchall()
    except sqlite3.OperationalError:
        return []


class Fleet:
    """The processes of one measurement, in `base`."""

    def __init__(self, base: Path, controller: dict[str, Any]) -> None:
        self.base, self.controller = base, controller
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        with (self.base / f"{name}.log").open("wb") as log:
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            process = subprocess.Popen(arguments, cwd=self.base, stdout=log, stderr=log, env=environment)
        self.processes.append(process)
        return process

    def text(self, name: str) -> str:
        return (self.base / f"{name}.log").read_text("utf-8", "replace")

    def serve(self) -> tuple[subprocess.Popen[bytes], Path]:
        text = self.base / "text.txt"
        text.write_text("".join(f"{a} plus {b} is {a + b}.\n" for a in range(80) for b in range(80)))
        run_file = {
            "run": {"name": "failover", "dir": str(self.base / "runs")},
            "model": {"architecture": "gpt2", "config": {"hidden_size": 32, "num_layers": 2, "num_heads": 2}},
            "data": {"kind": "text", "files": [str(text)], "context": 64},
            "training": {"tokens": 10**10, "batch_size": 4, "local_steps": 10, "learning_rate": 0.003},
            "controller": {
                **self.controller,
                "checkpoint_seconds": 5.0,
                "evaluations": 1,
                "evaluation_rows": 16,
            },
        }
        (self.base / "run.yaml").write_text(json.dumps(run_file))
        process = self.start("serve", [*BARNRAISE, "serve", "run.yaml"])
        wait_for(lambda: "barnraise join" in self.text("serve"), "serve")
        return process, next((self.base / "runs").iterdir())

    def join(self, run: Path, name: str) -> None:
        invite, log = str(run / "keys" / "invite"), str(self.base / f"acknowledged-{name}")
        self.start(name, [sys.executable, "-c", WORKER, invite, name, str(self.base / "home"), log])

    def stand_by(self, run: Path, number: int) -> tuple[subprocess.Popen[bytes], Path]:
        invite = self.base / f"invite-{number}"
        told = subprocess.run([*BARNRAISE, "invite", str(run), "--standby"], check=True, capture_output=True)
        invite.write_bytes(told.stdout)
        name, folder = f"standby-{number}", self.base / f"copy-{number}"
        process = self.start(name, [*BARNRAISE, "standby", f"@{invite}", "--dir", str(folder), "--name", name])
        wait_for(lambda: "can take over" in self.text(name), name)
        return process, folder / run.name

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()


def fail_over(fleet: Fleet, leader: subprocess.Popen[bytes], copy: Path) -> tuple[float, dict[str, float]]:
    """Kill the controller, and return the time of the kill and the seconds until three events.

    The standby has accepted a contribution, has made a version, and has accepted a contribution of each worker.
    """
    (before,) = query(copy, "SELECT max(epoch) FROM contributions")[0]
    leader.send_signal(signal.SIGKILL)
    began = time.monotonic()
    leader.wait()

    def contributors() -> int:
        rows = query(
            copy,
            "SELECT count(DISTINCT node) FROM contributions WHERE epoch > ? AND verdict = 'accepted'",
            before or 0,
        )
        return int(rows[0][0]) if rows else 0

    def versions() -> int:
        rows = query(copy, "SELECT count(*) FROM versions WHERE made_epoch > ?", before or 0)
        return int(rows[0][0]) if rows else 0

    goals: dict[str, Callable[[], bool]] = {
        FIRST: lambda: contributors() >= 1,
        STEP: lambda: versions() >= 1,
        EACH: lambda: contributors() == len(WORKERS),
    }
    took: dict[str, float] = {}

    def all_reached() -> bool:
        for goal, reached in goals.items():
            if goal not in took and reached():
                took[goal] = time.monotonic() - began
        return len(took) == len(goals)

    wait_for(all_reached, "a version, and a contribution of each worker, after the kill")
    return began, took


def acknowledgements(fleet: Fleet) -> list[tuple[int, str, float]]:
    """Assignment, digest and time of each contribution that was acknowledged, as the workers wrote them down."""
    lines = [line for name in WORKERS for line in (fleet.base / f"acknowledged-{name}").read_text().splitlines()]
    return [(int(assignment), digest, float(at)) for assignment, digest, at in (line.split(" ") for line in lines)]


def until_acknowledged(fleet: Fleet, run: Path, kills: list[float]) -> list[float]:
    """Seconds from each kill to the first acknowledgement of a contribution that was accepted after it."""
    rows = query(run, "SELECT assignment, epoch FROM contributions WHERE verdict = 'accepted'")
    epochs = dict(rows)
    later = sorted(set(epochs.values()))[-len(kills) :]
    first = dict.fromkeys(later, math.inf)
    for assignment, _, at in acknowledgements(fleet):
        if (epoch := epochs.get(assignment)) in first:
            first[epoch] = min(first[epoch], at)
    return [at - kill for at, kill in zip(first.values(), kills, strict=True) if at < math.inf]


def lost(fleet: Fleet, run: Path) -> tuple[int, int]:
    """How many contributions were acknowledged, and how many of them the last controller does not have."""
    accepted = dict(query(run, "SELECT assignment, digest FROM contributions WHERE verdict = 'accepted'"))
    found = acknowledgements(fleet)
    return len(found), sum(accepted.get(assignment) != digest for assignment, digest, _ in found)


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two fail-overs")
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--lease", type=float, default=3.0, help="controller.standby_lease")
    parser.add_argument("--durability", choices=("local", "standby"), default="standby", help="controller.durability")
    parser.add_argument("--patience", type=float, default=30.0, help="controller.standby_patience")
    options = parser.parse_args()
    controller = {
        "durability": options.durability,
        "standby_lease": options.lease,
        "standby_patience": options.patience,
    }
    times = 2 if options.quick else options.times
    took: list[dict[str, float]] = []
    kills: list[float] = []
    print(_machine.look(), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        fleet = Fleet(Path(folder).resolve(), controller)
        try:
            leader, run = fleet.serve()
            for name in WORKERS:
                fleet.join(run, name)
            for number in range(1, times + 1):
                standby, copy = fleet.stand_by(run, number)
                accepted = query(run, "SELECT count(*) FROM contributions WHERE verdict = 'accepted'")[0][0]
                wait_for(
                    lambda run=run, enough=accepted + 4: (
                        query(run, "SELECT count(*) FROM contributions WHERE verdict = 'accepted'")[0][0] >= enough
                    ),
                    "work",
                )
                began, reached = fail_over(fleet, leader, copy)
                kills.append(began)
                took.append(reached)
                told = ", ".join(f"{reached[goal]:.2f} s to {goal}" for goal in (FIRST, STEP, EACH))
                print(f"{number:3d}: {told}", flush=True)
                leader, run = standby, copy
            wait_for(lambda: len(until_acknowledged(fleet, run, kills)) == times, "the last acknowledgement")
            told_workers = until_acknowledged(fleet, run, kills)
            acknowledged, missing = lost(fleet, run)
        finally:
            fleet.end()
    print(f"{times} fail-overs, lease {options.lease:g} s, durability {options.durability}, {len(WORKERS)} workers")
    measured = {goal: [reached[goal] for reached in took] for goal in (FIRST, STEP, EACH)}
    for what, values in (measured | {"first acknowledgement": told_workers}).items():
        p50, p99 = percentile(values, 0.5), percentile(values, 0.99)
        print(f"{what:22s} p50 {p50:.2f} s, p99 {p99:.2f} s, longest {max(values):.2f} s")
    print(f"acknowledged contributions: {acknowledged}, lost: {missing}")


if __name__ == "__main__":
    main()
