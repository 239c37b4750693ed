"""Run many real workers on one machine: measure their time to contribute, their cost, and the harm of faults.

    python benchmarks/many.py [--workers 64] [--seconds 120]

One `barnraise train` of a tiny model. From a third of the time on the benchmark kills a tenth of its workers (SIGKILL),
tells as many to leave (SIGTERM: they submit their work first), and starts as many new ones. It reads all figures from
the ledger: when the controller accepted a worker's first contribution; a late worker counts from the order to start it.
A run of one worker and one more comes first: it shows the time from spawn to productive without competing workers.
Targets: within 4 s; all workers contribute; no error; the controller takes less than one core.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from barnraise.core.errors import RunDirectoryError
from barnraise.ledger.decisions import Judged, NodeChanged
from barnraise.ledger.view import LedgerView

FAREWELL = 30.0
"""Seconds that a worker has to leave after the order to leave."""

ERRORS = ("broke", "silent", "missing")
"""Changes of a node that the benchmark did not plan."""


@dataclass
class Watched:
    """The outcome of one run."""

    tokens_per_second: float = 0.0
    controller_share: float = 0.0
    worker_bytes: float = 0.0  # a worker's share of the memory, with what it shares divided by those who do
    total_bytes: float = 0.0
    began: dict[str, float] = field(default_factory=dict)  # when a worker was told to start
    first: dict[str, float] = field(default_factory=dict)  # when its first contribution was accepted
    changes: list[NodeChanged] = field(default_factory=list)
    verdicts: dict[str, int] = field(default_factory=dict)

    @property
    def waits(self) -> list[float]:
        """Return the seconds until the later workers were productive."""
        return [self.first[name] - began for name, began in self.began.items() if began and name in self.first]

    @property
    def idle(self) -> list[str]:
        """Return the workers that never contributed."""
        return [name for name in self.began if name not in self.first]

    @property
    def errors(self) -> list[str]:
        return [
            f"{change.node}: {change.change}: {change.reason}" for change in self.changes if change.change in ERRORS
        ]


def run_file(folder: Path, workers: int, seconds: float) -> tuple[Path, dict[str, float]]:
    """The run, and when each worker is told to start. Faults begin after a third of the time."""
    (folder / "text.txt").write_text("".join(f"{a} times {b} is {a * b}.\n" for a in range(250) for b in range(250)))
    few = max(1, workers // 10)
    faults: list[dict[str, Any]] = []
    began = {f"w{number}": 0.0 for number in range(workers)}
    for number in range(few):
        at = seconds * (1 + number / few) / 3
        if workers > 2:
            faults.append({"at_seconds": at, "kill": f"w{number}"})
            faults.append({"at_seconds": at, "do": "preempt", "node": f"w{few + number}", "seconds": FAREWELL})
        faults.append({"at_seconds": at, "join": {"name": f"new{number}"}})
        began[f"new{number}"] = at
    content = {
        "run": {"name": "many", "dir": str(folder / "runs")},
        "model": {"architecture": "gpt_neo", "config": {"hidden_size": 32, "num_layers": 2, "num_heads": 2}},
        "data": {"kind": "text", "files": [str(folder / "text.txt")], "context": 32},
        "training": {"tokens": 10**12, "batch_size": 4, "local_steps": 20},
        "controller": {"evaluations": 1},
        "workers": [{"name": name} for name in began if name.startswith("w")],
        "faults": faults,
    }
    path = folder / "run.yaml"
    path.write_text(json.dumps(content))
    return path, began


def watch(workers: int, seconds: float) -> Watched:
    """Play a run for `seconds` of its own clock, then interrupt it, and return its outcome."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path, began = run_file(folder, workers, seconds)
        command = [sys.executable, "-m", "barnraise.cli.main", "train", str(path), "--json"]
        with (folder / "log").open("wb") as log:
            run = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            found = Watched(began=began)
            controller = psutil.Process(run.pid)
            settled = listening(folder, run) + seconds / 3
            while time.monotonic() < settled:
                time.sleep(0.2)
            cpu, since = sum(controller.cpu_times()[:2]), time.monotonic()
            time.sleep(seconds * 2 / 3)
            found.controller_share = (sum(controller.cpu_times()[:2]) - cpu) / (time.monotonic() - since)
            sizes = [held(process) for process in controller.children(recursive=True)]
            found.worker_bytes, found.total_bytes = statistics.median(sizes), sum(sizes) + held(controller)
            run.send_signal(signal.SIGINT)
            run.wait(60)
        except BaseException:
            print((folder / "log").read_text("utf-8", "replace"), file=sys.stderr)
            raise
        finally:
            run.kill()
            run.wait()
        read(next((folder / "runs").glob("many-*")), found, seconds)
        return found


def listening(folder: Path, run: subprocess.Popen[bytes]) -> float:
    """When workers were told to start, by this clock: the first one may be killed before it has a log."""
    while run.poll() is None:
        for path in (folder / "runs").glob("many-*/logs/worker-*.log"):
            return time.monotonic() if path.exists() else 0.0
        time.sleep(0.05)
    raise SystemExit("the run ended before it began")


def held(process: psutil.Process) -> int:
    with suppress(psutil.NoSuchProcess):
        return int(process.memory_full_info().pss)
    return 0


def read(run: Path, found: Watched, seconds: float) -> None:
    tokens = 0
    with suppress(RunDirectoryError), LedgerView(run / "ledger.sqlite") as view:
        for _, decision in view.replay():
            if isinstance(decision, Judged):
                found.verdicts[decision.verdict] = found.verdicts.get(decision.verdict, 0) + 1
                if decision.verdict == "accepted":
                    found.first.setdefault(decision.node, decision.time)
                    tokens += decision.tokens if seconds / 3 <= decision.time <= seconds else 0
            elif isinstance(decision, NodeChanged):
                found.changes.append(decision)
    found.tokens_per_second = tokens / (seconds * 2 / 3)


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f} s (worst {max(values):.1f})" if values else "never"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    if options.quick:
        options.workers, options.seconds = 6, 12.0
    alone = watch(1, min(30.0, options.seconds))
    print(f"one worker more, beside one: productive after {spread(alone.waits)}")
    found = watch(options.workers, options.seconds)
    firsts = [found.first[name] for name, began in found.began.items() if not began and name in found.first]
    counts = {change: sum(c.change == change for c in found.changes) for change in ("killed", "left", *ERRORS)}
    print(
        f"{options.workers} workers for {options.seconds:g} s; {', '.join(f'{n} {what}' for what, n in counts.items())}"
    )
    print(f"  contributing since the start    {spread(firsts)}, {len(found.idle)} never: {' '.join(found.idle)}")
    print(f"  one that joins later            {spread(found.waits)}")
    own, total = found.worker_bytes / 1e6, found.total_bytes / 1e9
    print(f"  memory                          {own:.0f} MB a worker, {total:.1f} GB in all")
    print(f"  controller                      {found.controller_share:.2f} of a core")
    print(f"  tokens a second                 {found.tokens_per_second:,.0f}")
    print(f"  verdicts                        {found.verdicts}")
    for error in found.errors:
        print(f"  error: {error}")


if __name__ == "__main__":
    main()
