"""What matching is worth where machines, links and tasks differ: one mixed fleet under each scheduler.

    python benchmarks/fleet.py [--seeds 10] [--schedulers fifo,gale_shapley]

Fifty machines whose speeds are lognormal (sigma 1, clipped to 0.1 to 100 times the median) behind cellular links, which
come and go as preemptible GPUs do; rows of three lengths, in shards of 8 to 64 MB that each node fetches before it can
work on them and keeps; workers measure the held-out loss. Work is costed only: what is compared is the virtual time to
the token budget, on the same machines, links, departures and returns for each scheduler (common random numbers).
Ratios are of the best of `random`, `round_robin` and `fifo` with the same seed; beside them Wilcoxon's signed-rank
test of the same pairs, with Holm's correction.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from scipy.stats import wilcoxon

from barnraise.assembly.simulation import simulate
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.emulation.report import Report
from barnraise.matching import CATALOG
from barnraise.plan import Purpose, resolve

NODES, RATE = 50, 4000.0
PLAIN = ("random", "round_robin", "fifo")
RUN: dict[str, Any] = {
    "run": {"name": "fleet-mixed"},
    "model": {"architecture": "gpt2", "config": {"hidden_size": 256, "num_layers": 4, "num_heads": 4}},
    "data": {"kind": "text", "files": ["corpus/**/*.txt"], "context": [256, 512, 1024]},
    "controller": {"threads": 16, "evaluated_by": "workers"},
    "network": {"profile": "cellular", "controller_link": "100gbit"},
    "training": {"batch_size": 8, "local_steps": 20, "compression": "sparse_loco", "downlink_compression": "int4"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=400_000_000)
    parser.add_argument("--schedulers", default=",".join(CATALOG.entries))
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.tokens = 2, 4_000_000
    names = list(dict.fromkeys([*PLAIN, *options.schedulers.split(",")]))
    found = {name: [play(name, seed, options.tokens) for seed in range(options.seeds)] for name in names}
    seconds = {name: [report.duration.virtual_seconds for report in reports] for name, reports in found.items()}
    best = [min(those) for those in zip(*(seconds[name] for name in PLAIN), strict=True)]
    chances = holm({name: difference(seconds[name], best) for name in names if name not in PLAIN})
    print(f"{NODES} nodes, {options.tokens:,} tokens, {options.seeds} seeds; medians (least to most)")
    print(f"{'':14}{'seconds':>24}{'GB down':>10}{'busy':>8}{'of the best plain one':>28}{'p, Holm':>10}")
    for name in names:
        ratios = [ours / theirs for ours, theirs in zip(seconds[name], best, strict=True)]
        down = statistics.median(report.traffic.bytes_down for report in found[name]) / 1e9
        busy = statistics.median(report.utilisation for report in found[name])
        told = f"{spread(ratios, '.3f'):>28}{chances[name]:>10.4f}" if name in chances else ""
        print(f"{name:14}{spread(seconds[name], ',.0f'):>24}{down:>10.1f}{busy:>8.1%}{told}")


def play(scheduler: str, seed: int, tokens: int) -> Report:
    """One run to its token budget."""
    changed = {"run": RUN["run"] | {"seed": seed}, "controller": RUN["controller"] | {"scheduler": scheduler}}
    run = RUN | changed | {"training": RUN["training"] | {"tokens": tokens}}
    plan = resolve(load(run), purpose=Purpose.SIMULATE, nodes=NODES)
    return simulate(plan, Trial(NODES, seed=seed, churn=True, tokens_per_second=RATE))


def difference(ours: list[float], theirs: list[float]) -> float:
    """How likely pairs differ so by chance; 1 where they do not differ."""
    return float(wilcoxon(ours, theirs).pvalue) if ours != theirs else 1.0


def holm(chances: dict[str, float]) -> dict[str, float]:
    """The same, corrected for how many there are (Holm 1979)."""
    adjusted, most = {}, 0.0
    for number, (name, chance) in enumerate(sorted(chances.items(), key=lambda item: item[1])):
        adjusted[name] = most = max(most, min(1.0, (len(chances) - number) * chance))
    return adjusted


def spread(values: list[float], form: str) -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


if __name__ == "__main__":
    main()
