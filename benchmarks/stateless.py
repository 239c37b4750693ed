"""Measure the cost and the gain of tasks that any node can repeat: stateless tasks beside stateful ones.

    python benchmarks/stateless.py [--seeds 3] [--steps 3,20,100] [--results FILE]

Four workers in rounds that wait for all, contributions in 4 bits, a GPT-2 of 0.12M parameters on the modules of the
standard library: the data, the rates of weight decay and the moments' decays of `miles.py`. A stateful worker keeps
its own moments and sends later what its codec left out; with *fleet* it continues with the fleet's momentum. Stateless
workers begin with the published state. With *changing* workers each worker leaves after a seventh of the run, one after
another, and a new one without any state replaces it: 24 in all.

A side's learning rate is the best of `--rates` with the first seed. The benchmark compares held-out losses after
equally many tokens, with the same seeds.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from _races import Known, files
from peers.common import ADAMW

from barnraise.assembly.simulation import simulate
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.plan import Purpose, resolve

SHAPE = {"hidden_size": 64, "num_layers": 2, "num_heads": 4}
SIDES: dict[str, dict[str, Any]] = {
    "own": {},
    "fleet": {"version_momentum": 1.0},
    "stateless": {"tasks": "stateless"},
}
BASELINE = "own"
NUM_WORKERS, CHANGES = 4, 24


@dataclass(frozen=True)
class Found:
    loss: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", default="3,20,100")
    parser.add_argument("--rates", default="0.006,0.01")
    parser.add_argument("--tokens", type=int, default=2_300_000)
    parser.add_argument("--results", type=Path, help="a file of what was found before, which is added to")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.steps, options.rates, options.tokens = 1, "3", "0.006", 20_000
    known, rates = Known(options.results), [float(rate) for rate in options.rates.split(",")]
    groups = [(int(steps), changing) for steps in options.steps.split(",") for changing in (False, True)]
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:

        def found(keys: Sequence[tuple[Any, ...]]) -> list[float]:
            runs = {key: known.get(list(key), Found) for key in keys}
            futures = {key: pool.submit(play, *key) for key, run in runs.items() if run is None}
            for key, future in futures.items():
                runs[key] = future.result()
                known.add(list(key), runs[key])
            return [run.loss for run in runs.values() if run is not None]

        first = [(name, *group, rate, 0, options.tokens) for group in groups for name in SIDES for rate in rates]
        losses = dict(zip(first, found(first), strict=True))
        print(f"{options.tokens:,} tokens, {options.seeds} seeds; held-out loss, nats a token: mean (least to most)")
        for steps, changing in groups:
            print(f"{steps} local steps{', changing workers' if changing else ''}")
            sides = {}
            for name in SIDES:
                rate = min(rates, key=lambda rate: losses[name, steps, changing, rate, 0, options.tokens])
                sides[name] = (
                    rate,
                    found([(name, steps, changing, rate, seed, options.tokens) for seed in range(options.seeds)]),
                )
            for name, (rate, runs) in sides.items():
                ratios = [its / own for its, own in zip(runs, sides[BASELINE][1], strict=True)]
                beside = f"{statistics.mean(ratios):.4f} ({min(ratios):.4f} to {max(ratios):.4f})"
                spread = f"{statistics.mean(runs):.4f} ({min(runs):.4f} to {max(runs):.4f})"
                print(f"  {name:12}{rate:7.3f}{spread:>28}   of {BASELINE}: {beside}")


def play(name: str, steps: int, changing: bool, rate: float, seed: int, tokens: int) -> Found:
    """One run."""
    changes = [
        change
        for number in range(CHANGES)
        for at in [(number + 1) / (CHANGES + 1)]
        for change in ({"at": at, "kill": f"n{number}"}, {"at": at, "join": {"name": f"n{number + NUM_WORKERS}"}})
    ]
    content = {
        "run": {"name": "stateless", "seed": seed},
        "model": {"architecture": "gpt2", "config": SHAPE},
        "data": {"kind": "text", "files": files("modules"), "context": 128},
        "controller": {"use_async_training": False, "evaluations": 1, "evaluation_rows": 256, "sync_window": 1e6}
        | {"checkpoint_seconds": 1e6, "sync_longest_wait": 1e6},
        "workers": [{"name": f"n{number}"} for number in range(NUM_WORKERS)],
        "faults": changes if changing else [],
        "training": {
            "tokens": tokens,
            "batch_size": 4,
            "local_steps": steps,
            "learning_rate": rate,
            "schedule": "cosine",
            "warmup_tokens": tokens // 20,
            "compression": "int4",
            "auto_tune": False,
        }
        | ADAMW
        | SIDES[name],
    }
    plan = resolve(load(content), purpose=Purpose.SIMULATE, nodes=NUM_WORKERS)
    report = simulate(plan, Trial(NUM_WORKERS, real=True, seed=seed))
    assert report.losses.final_loss is not None
    return Found(report.losses.final_loss)


if __name__ == "__main__":
    main()
