"""Measure the cost of the engine: tokens a second of barnraise against plain PyTorch loops, side by side.

    python benchmarks/engine.py                       all cases, half an hour
    python benchmarks/engine.py --cases 10M lora      one worker against one loop, of 10 million parameters

Both sides train the same GPT-Neo on the same rows with the same batch and AdamW, one thread each, subnormals flushed to
zero (barnraise does; a loop that does not loses 20% within 300 steps, as moments fade). With adapters the loop is
peft's, rank 16 on all linear layers beside a base in float32 on both sides. Engine and loops exist at the same time and
take turns of some seconds: while one side runs, the other is stopped (SIGSTOP), so that a machine whose speed drifts is
the same for both. The controller may use whatever core is free. Targets: >= 98% with one worker, >= 90% with four on
two cores, >= 97% at 10 and at 30 million parameters and with adapters.
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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from barnraise.core.errors import RunDirectoryError
from barnraise.ledger.decisions import Judged
from barnraise.ledger.view import LedgerView

CONTEXT, RANK = 128, 16


@dataclass(frozen=True)
class Case:
    """A model, how it is trained, and how long the turns are: the engine's in tasks, the loops' in seconds."""

    title: str
    width: int
    layers: int
    heads: int
    batch: int
    steps: int  # a task
    tasks: int  # a turn and worker
    seconds: float
    workers: int = 1
    loops: int = 1
    adapters: bool = False

    @property
    def model(self) -> dict[str, Any]:
        config = {"hidden_size": self.width, "num_layers": self.layers, "num_heads": self.heads}
        return {"architecture": "gpt_neo", "config": config}

    @property
    def task_tokens(self) -> int:
        return self.steps * self.batch * CONTEXT


SMALL = Case("1.9 million parameters, one worker against one loop", 192, 4, 6, 8, steps=20, tasks=2, seconds=8.0)
TEN = Case("10.0 million parameters, one worker against one loop", 320, 8, 5, 8, steps=10, tasks=2, seconds=16.0)
CASES = {
    "small": SMALL,
    "four": replace(SMALL, title="the same, four workers on two cores against two loops", workers=4, loops=2),
    "10M": TEN,
    "30M": Case("31.7 million parameters, one worker against one loop", 512, 10, 8, 4, steps=10, tasks=2, seconds=30.0),
    "lora": replace(TEN, title="adapters beside 10.0 million parameters against peft's loop", adapters=True),
}

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
if base := sys.argv[4]:
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging
    logging.disable_progress_bar()
    adapters = LoraConfig(r=int(sys.argv[5]), lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), adapters).train()
else:
    model = build(json.loads((run / "manifest.json").read_text())["model"]).train()
trained = [leaf for leaf in model.parameters() if leaf.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
with counter.open("r+b") as file:
    shared = mmap.mmap(file.fileno(), 8)
steps = 0
while True:
    start = steps * batch % (rows.meta.shards[0].rows - batch)
    tokens = torch.from_numpy(rows.rows(0, start, start + batch)["tokens"].astype(np.int64))
    optimizer.zero_grad()
    model(input_ids=tokens, labels=tokens).loss.backward()
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
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
    """A run of a case's workers, and the contributions it has accepted."""

    def __init__(self, folder: Path, case: Case) -> None:
        self.folder, self.base = folder, folder / "base" if case.adapters else None
        training: dict[str, Any] = {"tokens": 10**12, "batch_size": case.batch, "local_steps": case.steps}
        model = case.model
        if self.base:
            save_base(model, self.base)
            model, training["adapter"] = {"path": str(self.base)}, {"rank": RANK, "base": "float32"}
        self.path = folder / "bench.yaml"
        content = {
            "run": {"name": "bench", "dir": str(folder)},
            "model": model,
            "data": {"kind": "text", "files": [str(Path(__file__).parents[1] / "src/**/*.py")], "context": CONTEXT},
            "controller": {"evaluations": 1, "checkpoint_seconds": 1e6, "lease": 600.0},
            "workers": [{"name": f"w{index}"} for index in range(case.workers)],
            "training": training,
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


def save_base(model: dict[str, Any], folder: Path) -> None:
    """Write a model of random values and a tokenizer of bytes as a Hugging Face folder."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    from barnraise.data.tokenizers import ByteTokenizer
    from barnraise.models.config import describe
    from barnraise.models.instantiate import hugging_face_config

    logging.disable_progress_bar()
    torch.manual_seed(0)
    config = describe(model, 258, CONTEXT, eos_id=256, pad_id=257)
    AutoModelForCausalLM.from_config(hugging_face_config(config)).save_pretrained(folder)
    for name, content in ByteTokenizer().files().items():
        (folder / name).write_bytes(content)


def compare(case: Case, turns: int) -> tuple[float, float]:
    """Tokens a second of the engine and of the loops together, over `turns` turns."""
    engine_seconds = plain_seconds = 0.0
    taken, tasks = 0, case.tasks * case.workers
    with tempfile.TemporaryDirectory() as name:
        engine = Engine(Path(name), case)
        counters = [Path(name) / f"counter{index}" for index in range(case.loops)]
        with running(sys.executable, "-m", "barnraise.cli.main", "train", str(engine.path), "--json") as process:
            engine.wait(2 * case.workers)  # the first tasks of each worker wait for the others to start
            signal_tree(process, signal.SIGSTOP)
            with stopped_loops(engine, counters, case) as (loops, shared):
                for _ in range(turns):
                    began, before = time.monotonic(), count(shared)
                    for loop in loops:
                        signal_tree(loop, signal.SIGCONT)
                    time.sleep(case.seconds)
                    for loop in loops:
                        signal_tree(loop, signal.SIGSTOP)
                    plain_seconds += time.monotonic() - began
                    taken += count(shared) - before
                    first = len(engine.times) + case.workers  # those in hand were interrupted
                    signal_tree(process, signal.SIGCONT)
                    engine.wait(first + tasks)
                    signal_tree(process, signal.SIGSTOP)
                    engine_seconds += engine.times[first + tasks - 1] - engine.times[first - 1]
    return turns * tasks * case.task_tokens / engine_seconds, taken * case.batch * CONTEXT / plain_seconds


def count(shared: list[mmap.mmap]) -> int:
    """Steps that all loops have taken."""
    return sum(struct.unpack("<q", counter[:])[0] for counter in shared)


@contextmanager
def stopped_loops(
    engine: Engine, counters: list[Path], case: Case
) -> Iterator[tuple[list[subprocess.Popen[bytes]], list[mmap.mmap]]]:
    """Plain loops on the data and model of the engine's run, stopped after a task's steps, and their counters."""
    loops, shared = [], []
    try:
        for counter in counters:
            counter.write_bytes(bytes(8))
            with counter.open("r+b") as file:
                shared.append(mmap.mmap(file.fileno(), 8))
            given = [str(engine.run), str(counter), str(case.batch), str(engine.base or ""), str(RANK)]
            loops.append(subprocess.Popen([sys.executable, "-c", PLAIN, *given]))
        while any(struct.unpack("<q", counter[:])[0] < case.steps for counter in shared):
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
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    if options.quick:
        for adapters in (False, True):
            case = replace(SMALL, width=48, layers=2, heads=2, steps=2, seconds=2.0, adapters=adapters)
            report(f"small, {adapters = }", [compare(case, 1)])
        return
    for name in options.cases:
        report(CASES[name].title, [compare(CASES[name], options.turns) for _ in range(options.pairs)])


if __name__ == "__main__":
    main()
