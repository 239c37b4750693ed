"""Measure the speed of the simulator: 10,000 nodes for one virtual hour, work costed only, on one core.

    python benchmarks/simulate.py [--nodes 10000] [--hours 1] [--json]
    python benchmarks/simulate.py --nodes 1500 --hours 0.2 --steps 100 [--context 256,512,1024] [--scheduler fifo]

A run of a GPT-2 of 11M parameters with top-k contributions, behind a data centre's line; tasks of the median node take
about ten minutes. (One controller can inspect the updates of 10,000 nodes at 11M parameters, but not at 124M.) An event
is one call of a state machine (the controller's or a worker's). Besides the wall clock it prints the CPU time, which
other work on the machine disturbs less, and what a plain Python loop reaches at the same time, to compare machines by.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from barnraise.assembly.recorded import recorded
from barnraise.assembly.simulation import simulate
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.plan import Purpose, resolve

RUN: dict[str, dict[str, Any]] = {
    "run": {"name": "fleet"},
    "model": {"architecture": "gpt2", "config": {"hidden_size": 384, "num_layers": 6, "num_heads": 6}},
    "data": {"kind": "text", "files": ["corpus/**/*.txt"], "context": 1024},
    "controller": {"threads": 16},
    "network": {"profile": "good", "controller_link": "100gbit"},
    "training": {
        "tokens": 10**12,
        "batch_size": 8,
        "local_steps": 1200,
        "compression": "topk",
        "downlink_compression": "int8",
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=RUN["training"]["local_steps"], help="local steps a task")
    parser.add_argument("--context", default=str(RUN["data"]["context"]), help="row lengths, by commas")
    parser.add_argument("--scheduler", default="gale_shapley")
    parser.add_argument("--run-dir", type=Path, help="a new folder for the ledger; then a commit of it counts, too")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    if options.quick:
        options.nodes, options.hours = 200, 0.5
    run = RUN | {
        "controller": RUN["controller"] | {"scheduler": options.scheduler},
        "data": RUN["data"] | {"context": [int(length) for length in options.context.split(",")]},
        "training": RUN["training"] | {"local_steps": options.steps},
    }
    plan = resolve(load(run), purpose=Purpose.SIMULATE, nodes=options.nodes)
    loop_before = loop_rate()
    trial = Trial(options.nodes, hours=options.hours)
    began, cpu = time.monotonic(), time.process_time()
    if options.run_dir is None:
        found = simulate(plan, trial)
    else:
        with recorded(options.run_dir, plan, trial, say=print) as watch:
            found = simulate(plan, trial, watch)
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    figures = {
        "nodes": options.nodes,
        "virtual_hours": options.hours,
        "events": found.duration.events,
        "seconds": found.duration.seconds,
        "whole_seconds": seconds,
        "cpu_seconds": cpu,
        "events_per_second": found.duration.events / found.duration.seconds,
        "events_per_cpu_second": found.duration.events / cpu,
        "peak_bytes": peak,
        "loop_iterations_per_cpu_second": (loop_before + loop_rate()) / 2,
        "versions": found.versions,
        "accepted": found.verdicts.accepted,
        "acceptance_rate": found.verdicts.acceptance_rate,
        "utilisation": found.utilisation,
        "ledger_hash": found.ledger_hash,
    }
    if options.json:
        print(json.dumps(figures))
        return
    accepted, rate = found.verdicts.accepted, found.verdicts.acceptance_rate
    print(f"{options.nodes:,} nodes for {options.hours:g} virtual h: {found.versions:,} versions, {accepted:,}")
    print(f"  contributions accepted ({rate:.2%}), nodes busy {found.utilisation:.1%} of the time")
    print(f"{'':24}{'measured':>12}{'target':>12}")
    print(f"{'events a second':24}{figures['events_per_second']:>12,.0f}{'>= 40,000':>12}")
    print(f"{'events a CPU second':24}{figures['events_per_cpu_second']:>12,.0f}")
    print(f"{'seconds':24}{found.duration.seconds:>12.1f}{'< 60':>12}")
    print(f"{'CPU seconds':24}{cpu:>12.1f}")
    print(f"{'peak memory':24}{peak / 1e6:>9.0f} MB{'< 1 GB':>12}")
    print(f"{'a bare loop, M/CPU s':24}{figures['loop_iterations_per_cpu_second'] / 1e6:>12.1f}")


def loop_rate(count: int = 3_000_000) -> float:
    """Iterations of a Python loop that adds integers, a CPU second."""
    began, total = time.process_time(), 0
    for number in range(count):
        total += number
    return count / (time.process_time() - began)


if __name__ == "__main__":
    main()
