"""Measure joining and recovery of a large model over a slow link, with real processes: a controller and two workers.

    python benchmarks/large_recovery.py [--size 20m]          4 GB of memory, some minutes
    python benchmarks/large_recovery.py --size 124m           about 13 GB, and 7 minutes for the first download alone

The first worker has no slow link, so that there is work all the time. The second one joins over an emulated link of 10
Mbit/s and 50 ms there and back: how long until its first contribution is accepted? It is killed with SIGKILL: when is
it missed, when is its task with the other worker? It joins again with the replica on its disk: how long until its first
contribution is accepted? Times are from its first greeting, by the controller's clock, and in brackets from the start
of its process, which imports torch before it greets. Beside each is the floor: the bytes that had crossed the link by
then, at its full rate.
"""

from __future__ import annotations

import argparse
import json
import platform
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import _machine
import psutil
from recovery import decisions, find, last_id, start, until

SIZES: dict[str, dict[str, int]] = {
    "quick": {"hidden_size": 128, "num_layers": 2, "num_heads": 4},
    "20m": {"hidden_size": 576, "num_layers": 5, "num_heads": 9},
    "124m": {"hidden_size": 832, "num_layers": 15, "num_heads": 13},
}
"""Models by their number of parameters; most of them are in the layers, since the tokens are bytes."""

PATIENCE = 3600.0
"""Seconds within which each thing must happen."""


def run_file(folder: Path, size: str, local_steps: int, seed: int) -> Path:
    (folder / "text.txt").write_text("".join(f"{a} times {b} is {a * b}.\n" for a in range(150) for b in range(50)))
    content = {
        "run": {"dir": str(folder / "runs"), "seed": seed},
        "model": {"architecture": "gpt2", "config": SIZES[size]},
        "data": {"kind": "text", "files": [str(folder / "text.txt")], "context": 64},
        "training": {
            "tokens": 10**12, "batch_size": 1, "local_steps": local_steps, "auto_tune": False, "learning_rate": 1e-4,
            "inner_optimizer": "sgd", "compression": "sparse_loco", "downlink_compression": "sparse_loco",
        },
        "controller": {"evaluations": 1, "evaluation_rows": 1},
    }  # fmt: skip
    path = folder / "run.yaml"
    path.write_text(json.dumps(content))
    return path


@dataclass(frozen=True)
class Accepted:
    """A worker's first accepted contribution: seconds since its greeting and its start, and bytes that had crossed."""

    seconds: float
    since_start: float
    bytes_up: int
    bytes_down: int


class Joined:
    """A worker's process, and the objects that it prints."""

    def __init__(self, folder: Path, ledger: Path, invite: str, name: str, link: str) -> None:
        self.log, self.began = folder / f"{name}-{time.monotonic_ns()}.log", time.time()
        self.name, self.ledger, self.mark = name, ledger, last_id(ledger)
        extra = ["--network", link] if link else []
        self.process: subprocess.Popen[bytes] = start(
            ["join", invite, "--name", name, "--threads", "1", "--home", str(folder / f"home-{name}"), "--log", "json",
             "-v", *extra],
            self.log,
        )  # fmt: skip

    def lines(self) -> list[dict[str, Any]]:
        texts = self.log.read_text("utf-8", "replace").splitlines()
        return [json.loads(text) for text in texts if text.startswith("{") and text.endswith("}")]

    def first(self) -> Accepted:
        def look() -> dict[str, Any] | None:
            if self.process.poll() is not None:
                raise SystemExit(f"a worker has ended:\n{self.log.read_text('utf-8', 'replace')[-2000:]}")
            return next((line for line in self.lines() if line.get("accepted")), None)

        found = until(look, PATIENCE, pause=0.2)
        mine = [d for _, d in decisions(self.ledger, self.mark) if getattr(d, "node", "") == self.name]
        greeted = next(d.time for d in mine if getattr(d, "change", "") == "joined")
        done = next(d.time for d in mine if getattr(d, "verdict", "") == "accepted")
        return Accepted(done - greeted, found["time"] - self.began, found["bytes_up"], found["bytes_down"])


def elsewhere(victim: Joined) -> tuple[float, float]:
    """Kill the worker; return the seconds until it is missed, and until its work is assigned again."""
    ledger, name = victim.ledger, victim.name
    mark = last_id(ledger)
    victim.process.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    victim.process.wait()

    def missed() -> bool:
        return any(getattr(d, "change", "") == "silent" and d.node == name for _, d in decisions(ledger, mark))

    until(missed, PATIENCE)
    noticed = time.monotonic()
    lost = {
        d.note.assignment for _, d in decisions(ledger, mark) if getattr(d, "kind", "") == "released" and d.node == name
    }
    until(
        lambda: not lost or any(getattr(d, "redo", 0) in lost for _, d in decisions(ledger, mark)), PATIENCE, pause=0.05
    )
    return noticed - killed, time.monotonic() - killed


def peak(processes: list[subprocess.Popen[bytes]]) -> float:
    """Return the resident memory of these processes now, in GB."""
    return sum(psutil.Process(each.pid).memory_info().rss for each in processes) / 1e9


def tell(what: str, found: Accepted, megabits: float) -> None:
    floor = 8 * (found.bytes_down + found.bytes_up) / (megabits * 1e6)
    down, up = found.bytes_down / 1e6, found.bytes_up / 1e6
    seconds = f"{found.seconds:8.1f} s ({found.since_start:.1f} s)"
    print(f"{what:<44}{seconds:<22}  floor {floor:7.1f} s ({down:.1f} MB down, {up:.1f} up)", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=sorted(SIZES), default="20m")
    parser.add_argument("--mbit", type=float, default=10.0)
    parser.add_argument("--local-steps", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    size = "quick" if options.quick else options.size
    link = f"{options.mbit:g}mbit/25ms"
    print(_machine.look(), flush=True)
    print(f"{date.today()}, {platform.processor() or platform.machine()}, model {size}, {link}, seed {options.seed}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "serve.log"
        controller = start(["serve", str(run_file(folder, size, options.local_steps, options.seed))], log)
        workers = list[Joined]()

        def join(name: str, link: str = "") -> Joined:
            workers.append(Joined(folder, ledger, invite, name, link))
            return workers[-1]

        try:
            run = Path(until(find(log, r"run directory (\S+)")))
            invite = until(find(log, r"barnraise join '([^']+)'"), PATIENCE)
            ledger = run / "ledger.sqlite"
            near = join("near")
            tell("the first worker, without a slow link", near.first(), float("inf"))
            victim = join("victim", link)
            tell("a joiner's first accepted contribution", victim.first(), options.mbit)
            print(f"{'memory of the three processes':<44}{peak([controller, near.process, victim.process]):8.1f} GB")
            missed, again = elsewhere(victim)
            print(f"{'the killed worker is missed after':<44}{missed:8.1f} s", flush=True)
            print(f"{'its work is with the other worker after':<44}{again:8.1f} s", flush=True)
            tell("it comes back, with its replica on disk", join("victim", link).first(), options.mbit)
        finally:
            for process in (*(worker.process for worker in workers), controller):
                process.kill()
                process.wait()


if __name__ == "__main__":
    main()
