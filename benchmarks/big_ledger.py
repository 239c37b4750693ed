"""Write a week's ledger of a large fleet in the form of a simulation's folder, to measure how soon readers open it.

    python benchmarks/big_ledger.py --out DIR [--workers 1000] [--contributions 1000000] [--days 7] [--simulate]

The rows are those of a run of `--workers` over `--days`: tasks, verdicts, a version of some contributions a minute,
evaluations, figures once a minute, and nodes that leave and come back. They are made up, since a simulation of as many
contributions takes an hour; with `--simulate` it is one. Then `barnraise status DIR` is measured in processes of their
own: cold, without the cache file, and warm, with it (the least of three).
"""

from __future__ import annotations

import argparse
import math
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from _machine import look

from barnraise.assembly.recorded import recorded
from barnraise.assembly.simulation import simulate
from barnraise.assembly.trial import Trial
from barnraise.config.load import dump, load
from barnraise.core.types import NodeProfile, ParameterRange, RowRange
from barnraise.core.units import bytes_text
from barnraise.ledger import (
    Assigned,
    Change,
    Claim,
    Decision,
    Judged,
    NodeChanged,
    Noted,
    RunDirectory,
    SimulatedLedger,
    Simulation,
    Terms,
    VersionClosed,
    VersionMade,
    Weighing,
    notes,
)
from barnraise.plan import Purpose, resolve

COMMIT = 8192
SPAN = ParameterRange(0, 11_000_000)
TOKENS, STEPS = 2048, 4
MINUTE, DAY = 60.0, 86_400.0
AWAY = 0.002
"""Share of contributions after which a node leaves for a while."""

RUN = {
    "run": {"name": "week"},
    "model": {"architecture": "gpt2", "config": {"hidden_size": 384, "num_layers": 6, "num_heads": 6}},
    "data": {"kind": "text", "files": ["corpus/**/*.txt"], "context": 1024},
    "training": {"tokens": 10**12, "batch_size": 2, "local_steps": STEPS},
}


def rows(workers: int, contributions: int, seconds: float) -> Iterator[Decision]:
    """The decisions of the run, in order."""
    rng = random.Random(0)
    names = [f"node-{number:05}" for number in range(workers)]
    yield Noted(0.0, notes.Started("ab" * 32, "week"))
    yield Noted(0.0, notes.BufferSize(max(1, workers // 4), workers, "automatic"))
    for number, name in enumerate(names):
        yield NodeChanged(0.0, name, Change.ENROLLED, key=f"key of {name}")
        device = ("cuda:0 (simulated)", "cpu (simulated)", "mps (simulated)")[number % 3]
        yield NodeChanged(0.0, name, Change.JOINED, session=1, profile=NodeProfile(device=device))
    gap, minute, version, accepted, tokens = seconds / contributions, 0, 0, [], 0
    evaluated = max(1, int(seconds / MINUTE / 500))
    for number in range(1, contributions + 1):
        now, name = gap * number, names[number % workers]
        rows_ = (RowRange(number % 64, 16 * number, 16 * (number + 1)),)
        took = gap * workers * rng.uniform(0.5, 0.95)
        terms = Terms(50, 1e-3, SPAN, compute=took, fetch=1.0, send=3.0, compute_spread=0.1, link_spread=0.2)
        yield Assigned(now, number, name, "train", version, TOKENS, STEPS, rows_, 16 * number, terms)
        refused = rng.random() < 0.02
        claim = Claim(version, STEPS, 3.0, took, 40_000, "cd" * 32, 0)
        yield Judged(
            now, number, name, "refused" if refused else "accepted", "stale" if refused else "", claim,
            version=version, staleness=number % 7, tokens=TOKENS, norm=0.1, parameters=SPAN, weighing=Weighing(1.0),
        )  # fmt: skip
        if not refused:
            accepted.append(number)
        if rng.random() < AWAY:
            yield NodeChanged(now, name, Change.SILENT, "silent for 5.0 s")
            yield NodeChanged(now, name, Change.JOINED, session=number, profile=NodeProfile(device="cpu (simulated)"))
        if now < MINUTE * (minute + 1) or not accepted:
            continue
        minute, version, tokens = int(now / MINUTE), version + 1, tokens + TOKENS * len(accepted)
        of = min(len(accepted), workers)
        yield VersionClosed(now, version, tuple(accepted), of, TOKENS * len(accepted), "full", 1.0, (1.0,))
        yield VersionMade(now, version, "ab" * 32, 4_000_000)
        yield Noted(now, notes.Traffic(40_000 * number, 80_000 * number))
        yield Noted(now, notes.Matched(workers, 64, number, number // 2, 0.9, 1.0, 0.01))
        yield Noted(now, notes.Employed(0.1, 0.02, number, number // 50))
        if version % evaluated == 0:
            yield Noted(now, notes.Evaluated(version, 3.0 + 6.0 * math.exp(-4.0 * number / contributions), tokens))
        accepted = []


def write(path: Path, workers: int, contributions: int, seconds: float) -> None:
    """Write the folder of the run."""
    run = RunDirectory.create_at(path)
    run.write(run.run_file, dump(load(RUN)).encode())
    told = Simulation(workers, 0, 4 * SPAN.stop, seconds / 3600, real=True, end="the time is up")
    with SimulatedLedger(run.ledger, run.path.name) as ledger:
        waiting: list[Decision] = []
        for decision in rows(workers, contributions, seconds):
            waiting.append(decision)
            if len(waiting) >= COMMIT:
                ledger.commit(waiting)
                waiting.clear()
        ledger.commit(waiting)
    moved = {"bytes_up": 40_000 * contributions, "bytes_down": 80_000 * contributions}
    run.write(run.simulation_file, msgspec.structs.replace(told, **moved).encode())


def play(path: Path, workers: int, contributions: int, seconds: float) -> None:
    """Simulate a run with about as many contributions: a task takes a node of speed 1 as long as that gives it."""
    plan = resolve(load(RUN), purpose=Purpose.SIMULATE, nodes=workers)
    rate = plan.task_tokens * contributions / (workers * seconds)
    trial = Trial(workers, hours=seconds / 3600, tokens_per_second=rate)
    with recorded(path, plan, trial, say=print) as watch:
        simulate(plan, trial, watch)


def status(run: RunDirectory) -> tuple[float, float]:
    """The processor seconds of `barnraise status`, and the seconds that its user waits."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [sys.executable, "-m", "barnraise.cli.main", "status", str(run.path)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after, waited = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, waited


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--contributions", type=int, default=1_000_000)
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--simulate", action="store_true", help="simulate the run, instead of making its rows up")
    parser.add_argument("--out", type=Path, help="a new folder, which stays; a temporary one unless given")
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    if options.quick:
        options.workers, options.contributions, options.days = 20, 2000, 0.1
    print(look(), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory((options.out or Path(folder) / "week").absolute())
        make, began = play if options.simulate else write, time.process_time()
        make(run.path, options.workers, options.contributions, DAY * options.days)
        print(f"{run.ledger}: {bytes_text(run.ledger.stat().st_size)}, written in", end=" ")
        print(f"{time.process_time() - began:.0f} CPU seconds", flush=True)
        cold = status(run)
        warm = [status(run) for _ in range(3)]
        size = bytes_text(run.account_cache.stat().st_size) if run.account_cache.exists() else "none"
        print(f"status, cold: {cold[0]:.2f} CPU s, {cold[1]:.2f} s")
        print(f"status, warm: {min(w[0] for w in warm):.2f} CPU s, {min(w[1] for w in warm):.2f} s; cache {size}")


if __name__ == "__main__":
    main()
