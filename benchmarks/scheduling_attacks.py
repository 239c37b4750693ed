"""Measure the gain of one liar of nine by false reports and their timing, and its cost for the others.

    python benchmarks/scheduling_attacks.py [--seeds 5] [--hours 2] [--quick]

In virtual time, costed, on paired seeds: nine machines of unequal speed (lognormal) train asynchronously for some
hours. The same fleet and seeds run with all nodes honest, and with one node (the fourth fastest) that attacks. All
figures are ratios to the honest run, as geometric means of the seeds with least and most: the liar's share of the tasks
and of the tokens that are credited (the budget), the nodes that make a version (K), the others' staleness bounds, the
others' tokens a second. The last figure is the share of the others' contributions that the controller refused. A figure
that misses its target (a tenth) is bold.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from typing import Any

from barnraise.assembly.simulation import simulate
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.controller.state.actions import Journal
from barnraise.core.types import Train, name_of
from barnraise.emulation import simulator
from barnraise.emulation.fleet import lognormal_fleet
from barnraise.ledger.decisions import Assigned, Decision, Judged, VersionClosed
from barnraise.plan import Purpose, resolve
from barnraise.transport.links.presets import parse

NODES, LIAR, TASK_SECONDS, TARGET = 9, "liar", 20.0, 1.1
ATTACKS: dict[str, dict[str, Any]] = {
    "claim 100x": {"kind": "claim", "speed": 100.0, "link": 10.0},
    "claim 1/100": {"kind": "claim", "speed": 0.01, "link": 0.1},
    "withhold": {"kind": "withhold"},
    "slow_down": {"kind": "slow_down"},
    "refuse 1/2": {"kind": "refuse", "share": 0.5},
    "refuse all": {"kind": "refuse", "share": 1.0},
    "flood": {"kind": "flood"},
    "instant": {"kind": "instant"},
}


@dataclass(frozen=True)
class Found:
    """The figures of one run: `tasks` and `credit` are the liar's shares, `bound` and `speed` the others'."""

    tasks: float
    credit: float
    nodes: float
    bound: float
    speed: float
    refused: float


class _Count:
    def __init__(self) -> None:
        self.tasks, self.credit = {True: 0, False: 0}, {True: 0, False: 0}
        self.nodes, self.bounds = list[int](), list[int]()
        self.accepted = self.refused = 0

    def add(self, decision: Decision) -> None:
        lies = getattr(decision, "node", "") == LIAR
        if isinstance(decision, Assigned) and decision.kind == name_of(Train):
            self.tasks[lies] += 1
            if not lies:
                self.bounds.append(decision.terms.max_staleness)
        elif isinstance(decision, Judged) and decision.verdict != "discarded":
            self.credit[lies] += decision.tokens if decision.verdict == "accepted" else 0
            self.accepted += not lies and decision.verdict == "accepted"
            self.refused += not lies and decision.verdict == "refused"
        elif isinstance(decision, VersionClosed):
            self.nodes.append(decision.num_nodes)

    def found(self, seconds: float) -> Found:
        return Found(
            self.tasks[True] / sum(self.tasks.values()),
            self.credit[True] / sum(self.credit.values()),
            statistics.fmean(self.nodes),
            statistics.fmean(self.bounds),
            self.credit[False] / seconds,
            self.refused / max(1, self.accepted + self.refused),
        )


@contextmanager
def watched(see: Callable[[Decision], None]) -> Iterator[None]:
    """Watch every decision of a simulation."""
    journal = simulator._ACTIONS[Journal]

    def both(playing: Any, action: Any) -> None:
        journal(playing, action)
        see(action.decision)

    simulator._ACTIONS[Journal] = both
    try:
        yield
    finally:
        simulator._ACTIONS[Journal] = journal


def play(attack: dict[str, Any] | None, seed: int, hours: float) -> Found:
    """One run; without an attack all are honest."""
    names = [*(f"honest-{number}" for number in range(NODES - 1)), LIAR]
    content = {
        "run": {"name": "scheduling", "seed": seed},
        "model": {"architecture": "gpt2", "config": {"hidden_size": 64, "num_layers": 2, "num_heads": 2}},
        "data": {"kind": "sat", "variables": [4, 4], "clause_lengths": [1, 3], "context": 64, "examples": 100_000},
        "controller": {"evaluations": 1, "checkpoint_seconds": 1e6},
        "workers": [{"name": name} | ({"attack": attack} if name == LIAR and attack else {}) for name in names],
        "training": {"batch_size": 8, "local_steps": 20, "aggregation_rule": "mean"},
    }
    plan = resolve(load(content), purpose=Purpose.SIMULATE, nodes=NODES)
    rng, line = random.Random(f"fleet {seed}"), parse("100mbit/20ms")
    rate = plan.task_tokens / TASK_SECONDS
    drawn = sorted(lognormal_fleet(NODES, rate, lambda _: line, rng, sigma=0.7), key=lambda machine: -machine.rate)
    drawn = [*drawn[:3], *drawn[4:], drawn[3]]
    fleet = [replace(machine, name=name) for machine, name in zip(drawn, names, strict=True)]
    counted = _Count()
    with watched(counted.add):
        report = simulate(plan, Trial(NODES, hours=hours, seed=seed, fleet=fleet))
    return counted.found(report.duration.virtual_seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    parser.add_argument("--only", nargs="*", choices=ATTACKS, default=list(ATTACKS), help="these attacks")
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.hours = 1, 0.1
    honest = [play(None, seed, options.hours) for seed in range(options.seeds)]
    print(f"{options.seeds} seeds, {options.hours:g} h, 1 of {NODES} lies; over the same fleet where it is honest")
    print("| attack | liar's tasks | liar's credit | K | others' bounds | others' tokens/s | others refused |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in options.only:
        found = [play(ATTACKS[name], seed, options.hours) for seed in range(options.seeds)]
        pairs = [(astuple(lied), astuple(sound)) for lied, sound in zip(found, honest, strict=True)]
        cells = [_told([lied[place] / sound[place] for lied, sound in pairs], place) for place in range(5)]
        print(f"| {name} | {' | '.join(cells)} | {statistics.fmean(one.refused for one in found):.1%} |", flush=True)


def _told(ratios: list[float], place: int) -> str:
    """Return the figure, in bold where it misses the target.

    The target is at most a tenth more for the liar, and at most a tenth more or less for K and the others.
    """
    mean = statistics.geometric_mean(ratios) if min(ratios) > 0 else 0.0
    missed = mean > TARGET or (place >= 2 and mean < 1 / TARGET)
    return f"{'**' * missed}{mean:.2f}{'**' * missed} ({min(ratios):.2f} to {max(ratios):.2f})"


if __name__ == "__main__":
    main()
