"""Measure the cost of the engine: tokens a second of barnraise against plain PyTorch loops, side by side.

    python benchmarks/engine.py            one worker against one loop, four workers against two loops

Both sides train the same GPT-Neo on the same rows with the same batch and AdamW, one thread each, subnormals flushed to
zero (barnraise does; a loop that does not loses 20% within 300 steps, as moments fade). Engine and loops exist at the
same time and take turns of some seconds: while one side runs, the other is stopped (SIGSTOP), so that a machine whose
speed drifts is the same for both. The controller may use whatever core is free. Targets: >= 98% with one worker,
>= 90% with four on two cores.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from barnraise.core.errors import RunDirectoryError
from barnraise.ledger.decisions import Judged
from barnraise.ledger.view import LedgerView

MODEL = {"architecture": "gpt_neo", "config": {"hidden_size": 192, "num_layers": 4, "num_heads": 6}}
BATCH, CONTEXT, STEPS = 8, 128, 20

PLAIN = """
import json, mmap, struct, sys
from pathlib import Path
import numpy as np, torch
torch.set_num_threads(1)
torch.set_flush_denormal(True)
from barnraise.data.shards import Dataset
from barnraise.models.build import build
run, counter = Path(sys.argv[1]), Path(sys.argv[2])
rows, batch = Dataset.open(run / "data"), int(sys.argv[3])
model = build(json.loads((run / "manifest.json").read_text())["model"]).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
with counter.open("r+b") as file:
    shared = mmap.mmap(file.fileno(), 8)
steps = 0
while True:
    start = steps * batch % (rows.meta.shards[0].rows - batch)
    tokens = torch.from_numpy(rows.rows(0, start, start + batch)["tokens"].astype(np.int64))
    optimizer.zero_grad()
    model(input_ids=tokens, labels=tokens).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    steps += 1
    shared[:] = struct.pack("<q", steps)
"""


def signal_tree(process: subprocess.Popen[bytes], number: int) -> None:
    """Signal a process and all that it started."""
    root = psutil.Process(process.pid)
    for member in [root, *root.children(recursive=True)]:
        member.send_signal(number)


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        signal_tree(process, signal.SIGKILL)
        process.wait()


class Engine:
    """A run of `workers` equal workers, and the contributions it has accepted."""

    def __init__(self, folder: Path, workers: int, steps: int) -> None:
        self.folder = folder
        self.path = folder / "bench.yaml"
        content = {
            "run": {"name": "bench", "dir": str(folder)},
            "model": MODEL,
            "data": {"kind": "text", "files": [str(Path(__file__).parents[1] / "src")], "context": CONTEXT},
            "controller": {"evaluations": 1, "checkpoint_seconds": 1e6, "lease": 600.0},
            "workers": [{"name": f"w{index}"} for index in range(workers)],
            "training": {"tokens": 10**12, "batch_size": BATCH, "local_steps": steps},
        }
        self.path.write_text(json.dumps(content))
        self.times: list[float] = []
        self._last = 0

    @property
    def run(self) -> Path:
        return next(self.folder.glob("bench-*"))

    def wait(self, count: int) -> None:
        """Until `count` contributions are accepted."""
        while len(self.times) < count:
            time.sleep(0.05)
            for path in self.folder.glob("bench-*/ledger.sqlite"):
                with suppress(RunDirectoryError), LedgerView(path) as view:  # it is not one yet
                    for number, decision in view.replay(self._last):
                        self._last = number
                        if isinstance(decision, Judged):
                            assert decision.verdict == "accepted"
                            self.times.append(decision.time)


def compare(
    workers: int, num_loops: int, turns: int, tasks: int, steps: int = STEPS, seconds: float = 8.0
) -> tuple[float, float]:
    """Tokens a second of the engine and of the loops together, over `turns` turns.

    The engine's turns are of `tasks` contributions of `steps` steps, the loops' of `seconds`.
    """
    per_step = BATCH * CONTEXT
    engine_seconds = plain_seconds = 0.0
    taken = 0
    with tempfile.TemporaryDirectory() as name:
        engine = Engine(Path(name), workers, steps)
        counters = [Path(name) / f"counter{index}" for index in range(num_loops)]
        with running(sys.executable, "-m", "barnraise.cli.main", "train", str(engine.path), "--json") as process:
            engine.wait(2 * workers)  # the first tasks of each worker wait for the others to start
            signal_tree(process, signal.SIGSTOP)
            with stopped_loops(engine.run, counters, steps) as (loops, shared):
                for _ in range(turns):
                    began, before = time.monotonic(), count(shared)
                    for loop in loops:
                        signal_tree(loop, signal.SIGCONT)
                    time.sleep(seconds)
                    for loop in loops:
                        signal_tree(loop, signal.SIGSTOP)
                    plain_seconds += time.monotonic() - began
                    taken += count(shared) - before
                    first = len(engine.times) + workers  # those in hand were interrupted
                    signal_tree(process, signal.SIGCONT)
                    engine.wait(first + tasks)
                    signal_tree(process, signal.SIGSTOP)
                    engine_seconds += engine.times[first + tasks - 1] - engine.times[first - 1]
    return turns * tasks * steps * per_step / engine_seconds, taken * per_step / plain_seconds


def count(shared: list[mmap.mmap]) -> int:
    """Steps that all loops have taken."""
    return sum(struct.unpack("<q", counter[:])[0] for counter in shared)


@contextmanager
def stopped_loops(
    run: Path, counters: list[Path], warm: int
) -> Iterator[tuple[list[subprocess.Popen[bytes]], list[mmap.mmap]]]:
    """Plain loops on the data and model of `run`, stopped after `warm` steps, and their counters."""
    loops, shared = [], []
    try:
        for counter in counters:
            counter.write_bytes(bytes(8))
            with counter.open("r+b") as file:
                shared.append(mmap.mmap(file.fileno(), 8))
            command = [sys.executable, "-c", PLAIN, str(run), str(counter), str(BATCH)]
            loops.append(subprocess.Popen(command))
        while any(struct.unpack("<q", counter[:])[0] < warm for counter in shared):
            time.sleep(0.1)
        for loop in loops:
            os.kill(loop.pid, signal.SIGSTOP)
        yield loops, shared
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def report(title: str, pairs: list[tuple[float, float]]) -> None:
    print(title)
    for ours, theirs in pairs:
        print(f"  engine {ours:8,.0f} tokens/s   plain {theirs:8,.0f} tokens/s   ratio {ours / theirs:.3f}")
    print(f"  median ratio {statistics.median(ours / theirs for ours, theirs in pairs):.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    if options.quick:
        report("one worker against one plain loop", [compare(1, 1, 1, 2, steps=2, seconds=2.0)])
        return
    pairs = [compare(1, 1, options.turns, 2) for _ in range(options.pairs)]
    report("one worker against one plain loop", pairs)
    pairs = [compare(4, 2, options.turns, 8) for _ in range(options.pairs)]
    report("four workers on two cores against two plain loops", pairs)


if __name__ == "__main__":
    main()
