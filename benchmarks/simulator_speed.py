"""The simulator's speed and memory against targets: long tasks, short tasks, short tasks with a market, 10,000 nodes.

    python benchmarks/simulator_speed.py [--repeats 5] [--json]

Each case is a run of `benchmarks/simulate.py` in a process of its own, the cases in turns; the figures are medians.
Long and short tasks: 1,500 nodes, tasks of 1,200 steps for 30 virtual minutes, and of 100 steps for 12. With a market
the scheduler is `gale_shapley`, without it `fifo`. The last case is 10,000 nodes for a virtual hour, once, in seconds
of the clock. Events are counted by second of CPU time, which other work on the machine disturbs less. The targets are
for a machine on which a plain Python loop does 30 million iterations a second; the last line prints this machine's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

SIMULATE = Path(__file__).with_name("simulate.py")
SHORT = ["--nodes", "1500", "--hours", "0.2", "--steps", "100"]
CASES = {
    "long tasks": ["--nodes", "1500", "--hours", "0.5", "--scheduler", "fifo"],
    "short tasks": [*SHORT, "--scheduler", "fifo"],
    "short tasks, market": [*SHORT, "--scheduler", "gale_shapley"],
}
EVENTS = {"long tasks": 90_000, "short tasks": 65_000}
"""Least events a CPU second."""

MOST_BYTES = 100e6
LEAST_SHARE = 0.7
"""Least speed with a market, as a share of that without."""

MOST_SECONDS = 60.0


def run(arguments: list[str]) -> dict[str, Any]:
    """Return the figures of one run."""
    told = subprocess.run([sys.executable, str(SIMULATE), "--json", *arguments], capture_output=True, text=True)
    if told.returncode:
        raise SystemExit(f"{SIMULATE.name} {' '.join(arguments)} failed:\n{told.stderr}")
    found: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    small = ["--nodes", "40", "--hours", "0.05"] if options.quick else []
    found: dict[str, list[dict[str, Any]]] = {case: [] for case in CASES}
    for _ in range(1 if options.quick else options.repeats):
        for case, arguments in CASES.items():
            found[case].append(run([*arguments, *small]))
    large = run(small)
    speeds = {case: statistics.median(one["events_per_cpu_second"] for one in runs) for case, runs in found.items()}
    peaks = {case: max(one["peak_bytes"] for one in runs) for case, runs in found.items()}
    share = speeds["short tasks, market"] / speeds["short tasks"]
    loop = statistics.median(one["loop_iterations_per_cpu_second"] for runs in found.values() for one in runs)
    if options.json:
        figures = {"events_per_cpu_second": speeds, "peak_bytes": peaks, "market_share": share}
        print(json.dumps(figures | {"large": large, "loop_iterations_per_cpu_second": loop}))
        return
    print(f"{'':22}{'events a CPU s':>16}{'target':>12}{'peak memory':>14}{'target':>12}")
    for case, speed in speeds.items():
        target = f">= {EVENTS[case]:,}" if case in EVENTS else ""
        print(f"{case:22}{speed:>16,.0f}{target:>12}{peaks[case] / 1e6:>11.0f} MB{f'<= {MOST_BYTES / 1e6:.0f} MB':>12}")
    print(f"{'market over without':22}{share:>16.0%}{f'>= {LEAST_SHARE:.0%}':>12}")
    seconds, peak = large["seconds"], large["peak_bytes"] / 1e6
    print(f"{'10,000 nodes, 1 h':22}{seconds:>14.0f} s{f'<= {MOST_SECONDS:.0f} s':>12}{peak:>11.0f} MB")
    print(f"{'a bare loop, M/CPU s':22}{loop / 1e6:>16.1f}")


if __name__ == "__main__":
    main()
