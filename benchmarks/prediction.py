"""Measure how well the controller predicts a task's time: virtual fleets with other load, and real workers.

    python benchmarks/prediction.py [--seeds 5] [--live 1]

For each task the benchmark compares the predicted seconds at the assignment with the seconds from the moment at which
its node was free to its result. It prints the median of the absolute errors after ten tasks a node, and before. Target:
15%. It also prints the share of tasks within the predicted standard deviation: 68% where the prediction is right.

The fleets are those of `fleet.py` (speeds 100 times apart, cellular links, three row lengths, shards to fetch, nodes
that come and go), and the same machines behind fast links that stay. Each task's time is lognormal around the machine's
rate, whose load drifts (half of what is correlated is gone in seven minutes), and now and then for ten minutes
something else takes half of the machine. `--live` trains a tiny model with three worker processes that often.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import random
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import barnraise
from barnraise.account.hindsight import Hindsight
from barnraise.assembly.simulation import simulate
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.emulation import node as nodes
from barnraise.emulation.simulator import Simulator
from barnraise.ledger import Assigned, Judged, LedgerView, Noted
from barnraise.plan import Purpose, resolve

NODES, RATE = 50, 4000.0
DRIFT, SIGMA, EVERY = 0.9, 0.1, 60.0
"""The load's logarithm: the share that remains after a minute, and its standard deviation."""

BUSY, BUSY_MINUTES = 0.01, 10
"""Probability that other work begins in a minute, and the minutes for which it takes half of the machine."""

MIXED: dict[str, Any] = {
    "run": {"name": "prediction"},
    "model": {"architecture": "gpt2", "config": {"hidden_size": 256, "num_layers": 4, "num_heads": 4}},
    "data": {"kind": "text", "files": ["corpus/**/*.txt"], "context": [256, 512, 1024]},
    "controller": {"threads": 16, "evaluated_by": "workers"},
    "network": {"profile": "cellular", "controller_link": "100gbit"},
    "training": {"batch_size": 8, "local_steps": 20, "compression": "sparse_loco", "downlink_compression": "int4"},
}
STEADY = MIXED | {"network": {"profile": "good", "controller_link": "100gbit"}}
LIVE: dict[str, Any] = {
    "run": {"name": "prediction"},
    "model": {"architecture": "llama", "config": {"hidden_size": 64, "num_layers": 2, "num_heads": 4}},
    "data": {"kind": "text", "files": [str(Path(__file__).parents[1] / "docs/**/*.md")], "context": [32, 64, 128]},
    "workers": [{"name": name, "speed": speed} for name, speed in (("fast", 1.0), ("middling", 0.5), ("slow", 0.25))],
    "training": {"batch_size": 8, "local_steps": 20},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=200_000_000)
    parser.add_argument("--live", type=int, default=1, help="runs of real workers")
    parser.add_argument("--live-tokens", type=int, default=3_000_000)
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.tokens, options.live, options.live_tokens = 1, 20_000_000, 1, 150_000
    print(f"{'':44}{'tasks':>8}{'median error':>14}{'a tenth above':>15}{'the first ten':>15}{'within':>10}")
    for noise in (0.1, 0.2):
        for name, run, churn in (("cellular, churn", MIXED, True), ("good links", STEADY, False)):
            for scheduler in ("gale_shapley", "fifo"):
                found = [virtual(run, scheduler, noise, churn, seed, options.tokens) for seed in range(options.seeds)]
                tell(f"{name}, {scheduler}, noise {noise:g}", found)
    if options.live:
        tell("three processes of this machine", [live(seed, options.live_tokens) for seed in range(options.live)])


def virtual(run: dict[str, Any], scheduler: str, noise: float, churn: bool, seed: int, tokens: int) -> Hindsight:
    """A simulated run to its token budget."""
    changed = {"run": run["run"] | {"seed": seed}, "controller": run["controller"] | {"scheduler": scheduler}}
    plan = resolve(
        load(run | changed | {"training": run["training"] | {"tokens": tokens}}), purpose=Purpose.SIMULATE, nodes=NODES
    )
    seen = Hindsight()

    @contextlib.contextmanager
    def watch(simulator: Simulator) -> Iterator[None]:
        simulator.observers.append(lambda _, decision: seen.add(decision))
        loads = Loads(simulator, seed)
        simulator.at(EVERY, Loads.drift, loads, 0, None)
        yield

    nodes.JITTER = noise
    simulate(plan, Trial(NODES, seed=seed, churn=churn, tokens_per_second=RATE), watch)
    return seen


class Loads:
    """The other load on the machines of a simulation."""

    def __init__(self, simulator: Simulator, seed: int) -> None:
        self.simulator, self.rng = simulator, random.Random(f"load {seed}")
        self.rates = {name: node.spec.rate for name, node in simulator.nodes.items()}
        self.loads = dict.fromkeys(self.rates, 0.0)
        self.busy = dict.fromkeys(self.rates, 0)

    def drift(self, _: int, nothing: None) -> None:
        for name, node in self.simulator.nodes.items():
            self.loads[name] = DRIFT * self.loads[name] + self.rng.gauss(0.0, SIGMA * math.sqrt(1 - DRIFT**2))
            self.busy[name] = BUSY_MINUTES if self.rng.random() < BUSY else max(0, self.busy[name] - 1)
            rate = self.rates[name] * math.exp(self.loads[name]) * (0.5 if self.busy[name] else 1.0)
            node.spec = replace(node.spec, rate=rate)
        self.simulator.at(self.simulator.now + EVERY, Loads.drift, self, 0, None)


def live(seed: int, tokens: int) -> Hindsight:
    """Run real workers; the ledger holds their times."""
    with tempfile.TemporaryDirectory() as folder:
        changed = {"run": LIVE["run"] | {"seed": seed, "dir": folder}}
        run = LIVE | changed | {"training": LIVE["training"] | {"tokens": tokens}}
        summary = barnraise.train(run)
        seen = Hindsight()
        with LedgerView(summary.account.run.ledger) as view:
            rows = [*view.find(Assigned, "1"), *view.find(Judged, "1"), *view.find(Noted, "kind = 'released'")]
        for _, decision in sorted(rows, key=lambda row: row[0]):
            seen.add(decision)
        return seen


def tell(name: str, found: list[Hindsight]) -> None:
    errors, early = ([error for one in found for error in which(one)] for which in (errors_of, early_of))
    ninth = sorted(errors)[9 * len(errors) // 10] if errors else math.nan
    middle, first = (statistics.median(some) if some else math.nan for some in (errors, early))
    told = sum(one.told for one in found)
    within = sum(one.near for one in found) / told if told else math.nan
    print(f"{name:44}{len(errors):8,}{middle:14.1%}{ninth:15.1%}{first:15.1%}{within:10.0%}", flush=True)


def errors_of(seen: Hindsight) -> list[float]:
    return seen.errors.numbers


def early_of(seen: Hindsight) -> list[float]:
    return seen.early


if __name__ == "__main__":
    main()
