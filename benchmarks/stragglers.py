"""Measure the cost of stragglers, without and with remedies: virtual time to a token budget, on paired seeds.

    python benchmarks/stragglers.py [--seeds 10] [--nodes 20]

In virtual time, costed: a fleet trains. Now and then a node with an assigned task stands still for a minute or two
while its heartbeats continue, as a machine does whose owner plays a game. The benchmark plays the same seeds without
stragglers, and with them: where a buffer waits for K nodes or the run file's windows alone, where it closes once all
missing contributions are late, and with copies of late work, too. `measured` has the workers measure the held-out loss
often; a synchronous round continues meanwhile.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any
from unittest.mock import PropertyMock, patch

from barnraise.assembly.simulation import simulate
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.controller.versions.arrivals import BufferDeadline
from barnraise.controller.work.speculation import Speculation
from barnraise.emulation.fleet import lognormal_fleet
from barnraise.emulation.simulator import Simulator
from barnraise.ledger.decisions import Decision, Noted, VersionClosed
from barnraise.ledger.notes import Copied, Evaluated
from barnraise.ledger.rows import LedgerHash
from barnraise.plan import Purpose, resolve
from barnraise.transport.links.presets import parse

EVERY = 300.0
"""Seconds between two stops of a node, in the mean."""
STOPS = 60.0, 120.0

MODES: dict[str, tuple[dict[str, Any], float]] = {
    "asynchronous, K 5": ({"buffer_size": 5}, 1.0),
    "asynchronous, K all": ({"buffer_size": 10_000}, 1.0),
    "synchronous, alike": ({"use_async_training": False}, 0.0),
    "synchronous, mixed": ({"use_async_training": False}, 1.0),
    "measured": ({"buffer_size": 5, "evaluated_by": "workers", "evaluations": 40}, 1.0),
}


class Watched(LedgerHash):
    """Stop nodes of a simulation, and read the consequences on its ledger."""

    def __init__(self, simulator: Simulator, seed: int, stops: bool) -> None:
        super().__init__()
        self.simulator, self.rng = simulator, random.Random(f"stops {seed}")
        self.copies = 0
        self.evaluated: list[float] = []
        self.closed: list[float] = []
        simulator.ledger_hash = self
        if stops:
            self._plan()

    def update(self, decision: Decision) -> None:
        super().update(decision)
        if isinstance(decision, VersionClosed):
            self.closed.append(decision.time)
        if isinstance(decision, Noted):
            self.copies += isinstance(decision.note, Copied)
            if isinstance(decision.note, Evaluated):
                self.evaluated.append(decision.time)

    def _plan(self) -> None:
        pause = self.rng.expovariate(len(self.simulator.nodes) / EVERY)
        self.simulator.at(self.simulator.now + pause, Watched._stop, self, 0, None)

    def _stop(self, _: int, nothing: None) -> None:
        node = self.simulator.nodes[self.rng.choice(list(self.simulator.nodes))]
        if node.up:
            node.pause(self.rng.uniform(*STOPS))
        self._plan()


@contextmanager
def without(closing: bool, copies: bool) -> Iterator[None]:
    """The controller without one or both of its remedies."""
    with ExitStack() as stack:
        if closing:
            stack.enter_context(patch.object(BufferDeadline, "until", PropertyMock(return_value=math.inf)))
        if copies:
            stack.enter_context(patch.object(Speculation, "_waited_for", False))
        yield


WAYS = {"none of them": (True, True), "closing": (False, True), "copies": (True, False), "both": (False, False)}


def play(mode: str, nodes: int, tasks: int, seed: int, stops: bool) -> tuple[float, Watched]:
    """Virtual seconds until the budget is met, and what was seen on the way."""
    controller, sigma = MODES[mode]
    content = {
        "run": {"name": "stragglers"},
        "model": {"architecture": "gpt2", "config": {"hidden_size": 32, "num_layers": 1, "num_heads": 2}},
        "data": {"kind": "sat"},
        "controller": {"evaluations": 1, "checkpoint_seconds": 1e6, **controller},
        "training": {"batch_size": 16, "local_steps": 50, "compression": "topk"},
    }
    plan = resolve(load(content), purpose=Purpose.SIMULATE, nodes=nodes)
    content["training"]["tokens"] = nodes * tasks * plan.task_tokens
    plan = resolve(load(content), purpose=Purpose.SIMULATE, nodes=nodes)
    rate = plan.task_tokens / 10.0  # ten seconds a task
    fleet = lognormal_fleet(nodes, rate, lambda index: parse("good", index), random.Random(seed), sigma=sigma)
    found: list[Watched] = []

    @contextmanager
    def watch(simulator: Simulator) -> Iterator[None]:
        found.append(Watched(simulator, seed, stops))
        yield

    report = simulate(plan, Trial(nodes, fleet=fleet, seed=seed), watch)
    return report.duration.virtual_seconds, found[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--tasks", type=int, default=30, help="of each node")
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=list(MODES))
    parser.add_argument("--quick", action="store_true", help="a few seconds, to show that it runs")
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.nodes, options.tasks = 1, 6, 5
    print(f"{options.nodes} nodes, {options.tasks} tasks each, {options.seeds} seeds; virtual seconds, medians")
    print("mode                remedies       seconds  as without stops       longest gap  copies  between losses")
    for mode in options.modes:
        without_stops = [play(mode, options.nodes, options.tasks, seed, False) for seed in range(options.seeds)]
        calm = [seconds for seconds, _ in without_stops]
        gap = statistics.median(longest(seen) for _, seen in without_stops)
        print(f"{mode:19} (no stops) {statistics.median(calm):10.0f} {gap:37.0f}")
        for way, off in WAYS.items():
            with without(*off):
                runs = [play(mode, options.nodes, options.tasks, seed, True) for seed in range(options.seeds)]
            times = [seconds / before for (seconds, _), before in zip(runs, calm, strict=True)]
            gap = statistics.median(longest(seen) for _, seen in runs)
            losses = [after - before for _, seen in runs for before, after in pairwise(seen.evaluated)]
            between = f"{statistics.mean(losses):15.1f}" if mode == "measured" and losses else ""
            print(
                f"{'':19} {way:13} {statistics.median(seconds for seconds, _ in runs):7.0f}  "
                f"{statistics.median(times):5.2f} ({min(times):.2f} to {max(times):.2f}) {gap:16.0f} "
                f"{sum(seen.copies for _, seen in runs):7} {between}",
                flush=True,
            )


def longest(seen: Watched) -> float:
    """Seconds between two versions, at most."""
    return max(after - before for before, after in pairwise(seen.closed))


if __name__ == "__main__":
    main()
