"""Measure the share of contributions that is accepted over slow links, where speeds differ 100 times and nodes churn.

    python benchmarks/acceptance.py            in virtual time, from the very first contribution on: some minutes

Costed nodes whose speeds are evenly spread (in logarithm) over 1 to 100, all behind one link preset, with and without
churn; K and the adaptive bound are automatic. The upload of a payload of 3.3 MB takes longer than a task on most nodes,
so that several of a node's contributions are in flight. The controller refuses only stale contributions here.

Target: >= 99% on `cellular` and `satellite`, with and without churn, at 60 and 1,000 nodes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from barnraise.assembly.simulation import simulate
from barnraise.assembly.simulation_report import Report
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.emulation.fleet import Machine
from barnraise.plan import Purpose, resolve
from barnraise.transport.links.presets import parse

SOURCES = str(Path(__file__).parents[1] / "src/**/*.py")
SPREAD = 100.0
SLOWEST = 2000.0  # tokens a second


def play(network: str, nodes: int, churn: bool, tokens: int, seed: int) -> Report:
    content = {
        "run": {"name": "acceptance"},
        "model": {"architecture": "gpt_neo", "config": {"hidden_size": 128, "num_layers": 4, "num_heads": 4}},
        "data": {"kind": "text", "files": [SOURCES], "context": 64},
        "controller": {"evaluations": 1, "checkpoint_seconds": 1e6},
        "training": {"tokens": tokens, "batch_size": 8, "local_steps": 16},
        "network": {"profile": network},
    }
    step = SPREAD ** (1.0 / (nodes - 1))
    fleet = [Machine(f"node-{index:04d}", SLOWEST * step**index, parse(network)) for index in range(nodes)]
    plan = resolve(load(content), purpose=Purpose.SIMULATE, nodes=nodes)
    return simulate(plan, Trial(nodes, fleet=fleet, churn=churn, seed=seed))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a few seconds, to show that it runs")
    arguments = parser.parse_args()
    fleets = ((60, 2_000_000),) if arguments.quick else ((60, 20_000_000), (1000, 40_000_000))
    seeds = 1 if arguments.quick else arguments.seeds
    print(f"{'link':10} {'nodes':>5} {'churn':5}   accepted, least of {seeds} seeds   contributions   staleness, most")
    for network in ("none", "cellular", "satellite"):
        for nodes, tokens in fleets:
            for churn in (False, True):
                found = [play(network, nodes, churn, tokens, seed) for seed in range(seeds)]
                rates = " ".join(f"{report.verdicts.acceptance_rate:.2%}" for report in found)
                judged = sum(report.verdicts.accepted + report.verdicts.refused for report in found)
                print(
                    f"{network:10} {nodes:5} {'yes' if churn else 'no':5}   "
                    f"{min(report.verdicts.acceptance_rate for report in found):7.2%}  ({rates})   {judged:,}   "
                    f"{max(report.verdicts.staleness_max for report in found)}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
