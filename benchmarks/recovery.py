"""How long a death goes unnoticed and a crash lasts, on loopback, with real processes.

    python benchmarks/recovery.py

A worker that came by invite is killed with SIGKILL: when is it missed, when does its work run elsewhere? A controller
is killed: how long after `resume` is the first contribution accepted again? Medians over several deaths. Targets:
noticed in <= 1.5 s, running elsewhere within 2 s, work accepted within 5 s.
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

from barnraise.ledger.view import LedgerView

T = TypeVar("T")
BARNRAISE = [sys.executable, "-m", "barnraise.cli.main"]


def until(condition: Callable[[], T], seconds: float = 120.0, pause: float = 0.01) -> T:
    """The first true value of `condition`."""
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


def one_death(folder: Path, ledger: Path, invite: str, number: int) -> tuple[float, float]:
    """Seconds until a killed worker is missed, and until its work is assigned again."""
    name = f"victim{number}"
    victim = join(folder, invite, name)
    wait_until_working(ledger, {name})
    mark = last_id(ledger)
    victim.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    victim.wait()
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
    return missed - killed, again - killed


def one_crash(folder: Path, run: Path, controller: subprocess.Popen[bytes], number: int) -> tuple[float, Any]:
    """Seconds from `resume` until a contribution is accepted again."""
    ledger = run / "ledger.sqlite"
    controller.send_signal(signal.SIGKILL)
    controller.wait()
    mark = last_id(ledger)
    began = time.monotonic()
    resumed = start(["resume", str(run)], folder / f"resume{number}.log")
    accepted = until(
        lambda: any(getattr(d, "verdict", "") == "accepted" for _, d in decisions(ledger, mark)) and time.monotonic()
    )
    return accepted - began, resumed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    repeats = 1 if options.quick else options.repeats
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
            missed, again = (statistics.median(column) for column in zip(*deaths, strict=True))
            print(f"a killed worker is missed after     {missed:5.2f} s (worst {max(d[0] for d in deaths):.2f})")
            print(f"its work runs elsewhere after       {again:5.2f} s (worst {max(d[1] for d in deaths):.2f})")
            crashes = []
            for number in range(repeats):
                seconds, controller = one_crash(folder, run, controller, number)
                crashes.append(seconds)
                time.sleep(3.0)
            print(
                f"a killed controller accepts work    {statistics.median(crashes):5.2f} s after resume "
                f"(worst {max(crashes):.2f})"
            )
        finally:
            for process in (stayer, controller):
                process.kill()
                process.wait()


if __name__ == "__main__":
    main()
