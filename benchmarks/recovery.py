"""Measure how soon the controller notices a dead worker, and how long a crash lasts, with real processes on loopback.

    python benchmarks/recovery.py

A worker that came by invite is killed with SIGKILL: when is the next version made (the next step of the fleet, which
is what other systems call recovery), when is the worker missed, when does its work run elsewhere? A controller is
killed: how long after `resume`, which follows at once, is the first contribution accepted again, and the next version
made? Medians over several deaths. Targets: noticed in <= 1.5 s, running elsewhere within 2 s, work accepted within 5 s.
The first line says whether the machine was idle.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import _machine

from barnraise.ledger.decisions import VersionMade
from barnraise.ledger.view import LedgerView

T = TypeVar("T")
BARNRAISE = [sys.executable, "-m", "barnraise.cli.main"]


def until(condition: Callable[[], T], seconds: float = 120.0, pause: float = 0.01) -> T:
    """Wait for the first true value of `condition` and return it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(pause)
    raise SystemExit(f"nothing happened within {seconds} s")


def run_file(folder: Path) -> Path:
    (folder / "text.txt").write_text("".join(f"{a} times {b} is {a * b}.\n" for a in range(150) for b in range(50)))
    content = {
        "run": {"dir": str(folder / "runs")},
        "model": {"architecture": "gpt_neo", "config": {"hidden_size": 64, "num_layers": 2, "num_heads": 4}},
        "data": {"kind": "text", "files": [str(folder / "text.txt")], "context": 64},
        "training": {"tokens": 10**12, "batch_size": 8, "local_steps": 20},
        "controller": {"evaluations": 1, "checkpoint_seconds": 5.0},
    }
    path = folder / "run.yaml"
    path.write_text(json.dumps(content))
    return path


def start(arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen([*BARNRAISE, *arguments], stdout=file, stderr=file)


def find(log: Path, pattern: str) -> Callable[[], Any]:
    def look() -> Any:
        match = re.search(pattern, log.read_text("utf-8", "replace"))
        return match and match[1]

    return look


def decisions(ledger: Path, after: int = 0) -> list[tuple[int, Any]]:
    with LedgerView(ledger) as view:
        return list(view.replay(after))


def last_id(ledger: Path) -> int:
    found = decisions(ledger)
    return found[-1][0] if found else 0


def join(folder: Path, invite: str, name: str) -> subprocess.Popen[bytes]:
    home = str(folder / f"home-{name}")
    return start(["join", invite, "--name", name, "--threads", "1", "--home", home], folder / f"{name}.log")


def wait_until_working(ledger: Path, names: set[str]) -> None:
    def working() -> bool:
        return names <= {d.node for _, d in decisions(ledger) if getattr(d, "verdict", "") == "accepted"}

    until(working, pause=0.2)


def stepped(ledger: Path, mark: int) -> bool:
    """Whether a version was made after row `mark`."""
    return any(isinstance(d, VersionMade) for _, d in decisions(ledger, mark))


def one_death(folder: Path, ledger: Path, invite: str, number: int) -> tuple[float, float, float]:
    """Seconds until the next version after a worker is killed, until it is missed, and until its work is assigned
    again."""
    name = f"victim{number}"
    victim = join(folder, invite, name)
    wait_until_working(ledger, {name})
    mark = last_id(ledger)
    victim.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    victim.wait()
    step = until(lambda: stepped(ledger, mark) and time.monotonic())
    missed = until(
        lambda: (
            any(getattr(d, "change", "") == "silent" and d.node == name for _, d in decisions(ledger, mark))
            and time.monotonic()
        )
    )
    lost = {
        d.note.assignment for _, d in decisions(ledger, mark) if getattr(d, "kind", "") == "released" and d.node == name
    }
    again = until(
        lambda: (
            (not lost or any(getattr(d, "redo", 0) in lost for _, d in decisions(ledger, mark))) and time.monotonic()
        )
    )
    return step - killed, missed - killed, again - killed


def one_crash(
    folder: Path, run: Path, controller: subprocess.Popen[bytes], number: int
) -> tuple[tuple[float, float], Any]:
    """Seconds from `resume` until a contribution is accepted again, and until the next version."""
    ledger = run / "ledger.sqlite"
    controller.send_signal(signal.SIGKILL)
    controller.wait()
    mark = last_id(ledger)
    began = time.monotonic()
    resumed = start(["resume", str(run)], folder / f"resume{number}.log")
    accepted = until(
        lambda: any(getattr(d, "verdict", "") == "accepted" for _, d in decisions(ledger, mark)) and time.monotonic()
    )
    step = until(lambda: stepped(ledger, mark) and time.monotonic())
    return (accepted - began, step - began), resumed


def tell(what: str, seconds: list[float]) -> None:
    print(f"{what:<46} {statistics.median(seconds):5.2f} s (worst {max(seconds):.2f}, of {len(seconds)})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    repeats = 1 if options.quick else options.repeats
    print(_machine.look(), flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "serve.log"
        controller = start(["serve", str(run_file(folder))], log)
        run = Path(until(find(log, r"run directory (\S+)")))
        invite = until(find(log, r"barnraise join '([^']+)'"))
        ledger = run / "ledger.sqlite"
        stayer = join(folder, invite, "stayer")
        try:
            wait_until_working(ledger, {"stayer"})
            deaths = [one_death(folder, ledger, invite, number) for number in range(repeats)]
            tell("a worker is killed, the fleet's next step", [death[0] for death in deaths])
            tell("the killed worker is missed after", [death[1] for death in deaths])
            tell("its work runs elsewhere after", [death[2] for death in deaths])
            crashes = []
            for number in range(repeats):
                seconds, controller = one_crash(folder, run, controller, number)
                crashes.append(seconds)
                time.sleep(3.0)
            tell("a killed controller accepts work after resume", [crash[0] for crash in crashes])
            tell("the fleet's next step after resume", [crash[1] for crash in crashes])
        finally:
            for process in (stayer, controller):
                process.kill()
                process.wait()


if __name__ == "__main__":
    main()
