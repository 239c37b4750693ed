"""Measure the gain of matching where machines, links and tasks differ: one mixed fleet under each scheduler.

    python benchmarks/fleet.py [--seeds 10] [--schedulers fifo,gale_shapley] [--real] [--results FILE]

`examples/fleet-mixed.yaml`: fifty machines whose speeds are a hundred times apart, of 2 to 24 GB, behind links from a
phone's to a fast line, which come and go as preemptible GPUs do; rows of three lengths, in shards of 20 MB that each
node fetches before it can work on them and keeps; workers measure the held-out loss, and repeat one contribution in
twenty. Work is costed only. The benchmark compares the virtual time to the token budget, on the same machines, links,
departures and returns for each scheduler (common random numbers). Ratios are of the best of `random`, `round_robin` and
`fifo` with the same seed; beside them Wilcoxon's signed-rank test of the same pairs, with Holm's correction. That one
is no slower than another is tested as such: the geometric mean of the paired ratios of time, its one-sided upper bound
at 95%, and the chance of such ratios were it slower by the margin of 5% (Student's t of the logarithms, one half of two
one-sided tests).

With `--real` a scale model of it trains, a hundredth in bytes: a model of 0.1M parameters, shards of 200 kB of the
standard library's modules, links that carry a hundredth. Compared is the virtual time to a held-out loss. Beside it
stands one machine of the fleet's fastest kind alone, on the same data: with the same batches, and with batches as large
as those of all nodes together. The fleet (under gale_shapley) and each lone machine take that of the `--rates` with
which they come to the last loss first, with seed 0. `--momentum` is the fleet's `version_momentum`.

With `--alike` all machines have good lines and enough memory, and all rows have one length: this measures the gain of
matching where there is nothing to match.

`--results` keeps the results, so that an interrupted benchmark continues where it stopped.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import combinations
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import yaml
from _races import At, Known, files, reached
from scipy.stats import t as student
from scipy.stats import wilcoxon

from barnraise.assembly.simulation import simulate
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.matching import CATALOG
from barnraise.plan import Purpose, resolve
from barnraise.transport.links.presets import MBIT, parse

EXAMPLE = Path(__file__).parent.parent / "examples" / "fleet-mixed.yaml"
PLAIN = ("random", "round_robin", "fifo")
OURS = "gale_shapley"
ALONE, LARGE = "alone", "alone, large batches"
MARGIN = 0.05
"""Share by which a scheduler may be slower than another and still count as no slower."""

RATE = 4000.0
"""Tokens a second of speed 1.0."""

SCALE, SCALED_RATE = 100, 250.0
"""The model that trains: how many times smaller it is in bytes, and the rate at which a task takes as long."""

Key = tuple[int, str, int, str, float, float]
"""Settings of a run: seed, scheduler, tokens, workload, learning rate, momentum of the fleet."""


@dataclass(frozen=True)
class Found:
    """The outcome of one run. Shares of the nodes' time (busy, idle) and of the tasks (conflicts)."""

    seconds: float
    bytes_down: int
    busy: float
    idle: float
    conflicts: float
    ledger_hash: str
    curve: tuple[At, ...] = ()

    def time_to(self, loss: float) -> tuple[float, float]:
        """Return virtual seconds and tokens until the loss; those of the whole run when it never reached the loss."""
        return reached(self.curve, loss) or (self.seconds, self.curve[-1].tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=0, help="400M, or 6M with --real")
    parser.add_argument("--schedulers", default=",".join(CATALOG.entries))
    parser.add_argument("--real", action="store_true", help="train a scale model, and compare times to a loss")
    parser.add_argument("--alike", action="store_true", help="rows and lines of one kind, and memory for all")
    parser.add_argument("--rates", default="0.003", help="with --real: learning rates that are tried")
    parser.add_argument("--momentum", type=float, default=0.0, help="with --real: share of the fleet's momentum")
    parser.add_argument("--losses", default="2.6,2.5", help="with --real: those that are waited for")
    parser.add_argument("--results", type=Path, help="a file of what was found before, which is added to")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    tokens = options.tokens or (6_000_000 if options.real else 400_000_000)
    if options.quick:
        options.seeds, tokens, options.losses = 2, 60_000 if options.real else 4_000_000, "5.4"
    names = list(dict.fromkeys([*PLAIN, *options.schedulers.split(",")]))
    wanted = names + [ALONE, LARGE] * options.real
    known, rates = Known(options.results), [float(rate) for rate in options.rates.split(",")]
    losses = [float(loss) for loss in options.losses.split(",")] if options.real else []
    workload = "real" if options.real else "alike" if options.alike else "mixed"

    def key(seed: int, name: str, rate: float) -> Key:
        return seed, name, tokens, workload, rate, 0.0 if name in (ALONE, LARGE) else options.momentum

    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:

        def found(keys: Iterable[Key]) -> dict[Key, Found]:
            runs = {each: known.get(list(each), Found) for each in keys}
            futures = {each: pool.submit(play, *each) for each, run in runs.items() if run is None}
            for each, future in futures.items():
                runs[each] = future.result()
                known.add(list(each), future.result())
            return {each: run for each, run in runs.items() if run is not None}

        taken = dict.fromkeys(wanted, rates[0])
        if options.real and len(rates) > 1:
            tried = found(key(0, name, rate) for name in (OURS, ALONE, LARGE) for rate in rates)
            times = {each: run.time_to(losses[-1])[0] for each, run in tried.items()}
            for name in wanted:
                tuned = name if name in (ALONE, LARGE) else OURS
                taken[name] = min(rates, key=lambda rate: times[key(0, tuned, rate)])
            print(f"rates: {', '.join(f'{name} {rate:g}' for name, rate in taken.items())}")
        runs = found(key(seed, name, taken[name]) for seed in range(options.seeds) for name in wanted)
    sides = {name: [runs[key(seed, name, taken[name])] for seed in range(options.seeds)] for name in wanted}
    fleets = {name: sides[name] for name in names}
    print(f"{tokens:,} tokens, {options.seeds} seeds; medians (least to most)")
    for loss in losses:
        print(f"to a loss of {loss:g}:")
        compare({name: [run.time_to(loss)[0] for run in runs] for name, runs in sides.items()}, sides)
        for lone in (ALONE, LARGE):
            beside(sides, lone, loss)
    if not options.real:
        compare({name: [run.seconds for run in runs] for name, runs in fleets.items()}, fleets)
    if OURS in names:
        print(f"seconds of {OURS} over those of each other, same seeds: median (least to most), and is it no slower?")
        for name in (name for name in names if name != OURS):
            pairs = zip(sides[OURS], sides[name], strict=True)
            ratios = [ours.seconds / its.seconds for ours, its in pairs]
            print(f"{name:22}{spread(ratios, '.3f'):>28}  {no_slower(ratios)}")
    for one, other in combinations(names, 2):
        same = sum(a.ledger_hash == b.ledger_hash for a, b in zip(sides[one], sides[other], strict=True))
        if same:
            print(f"{one} and {other} made the same ledger with {same} of {options.seeds} seeds")


def compare(seconds: Mapping[str, list[float]], found: Mapping[str, list[Found]]) -> None:
    """Print a row for each scheduler."""
    best = [min(those) for those in zip(*(seconds[name] for name in PLAIN), strict=True)]
    chances = holm(
        {name: difference(seconds[name], best) for name in seconds if name in CATALOG.entries and name not in PLAIN}
    )
    head = f"{'':22}{'seconds':>24}{'GB down':>10}{'busy':>8}{'idle':>8}{'conflicts':>11}"
    print(f"{head}{'of the best plain one':>28}{'p, Holm':>10}")
    for name, ours in seconds.items():
        ratios = [its / theirs for its, theirs in zip(ours, best, strict=True)]
        down, busy, idle, conflicts = (
            statistics.median(getattr(run, what) for run in found[name])
            for what in ("bytes_down", "busy", "idle", "conflicts")
        )
        told = f"{chances[name]:>10.4f}" if name in chances else ""
        row = f"{name:22}{spread(ours, ',.0f'):>24}{down / 1e9:>10.2f}{busy:>8.1%}{idle:>8.1%}{conflicts:>11.1%}"
        print(f"{row}{spread(ratios, '.3f'):>28}{told}")


def beside(sides: Mapping[str, list[Found]], lone: str, loss: float) -> None:
    """Print tokens to a loss, and the final loss, over those of one machine."""
    usual = statistics.median(run.time_to(loss)[1] for run in sides[lone])
    print(f"tokens over those of one fast machine {lone} ({usual:,.0f}); the last loss over its")
    for name, runs in sides.items():
        tokens = [ours.time_to(loss)[1] / its.time_to(loss)[1] for ours, its in zip(runs, sides[lone], strict=True)]
        ends = [ours.curve[-1].loss / its.curve[-1].loss for ours, its in zip(runs, sides[lone], strict=True)]
        print(f"{name:22}{spread(tokens, '.2f'):>28}{spread(ends, '.3f'):>28}")


def play(seed: int, scheduler: str, tokens: int, workload: str, learning_rate: float, momentum: float) -> Found:
    """One run to its token budget."""
    content, real = yaml.safe_load(EXAMPLE.read_text()), workload == "real"
    if real:
        content = scaled(content)
        content["training"] |= {"learning_rate": learning_rate, "version_momentum": momentum}
    elif workload == "alike":
        content = alike(content)
    if scheduler in (ALONE, LARGE):
        content = alone(content, large=scheduler == LARGE)
        scheduler = "fifo"
    changed = {"run": content["run"] | {"seed": seed}, "controller": content["controller"] | {"scheduler": scheduler}}
    run = content | changed | {"training": content["training"] | {"tokens": tokens}}
    nodes, rate = len(content["workers"]), SCALED_RATE if real else RATE
    plan = resolve(load(run), purpose=Purpose.SIMULATE, nodes=nodes)
    report = simulate(plan, Trial(nodes, seed=seed, churn=nodes > 1, real=real, tokens_per_second=rate))
    points = [point for point in report.losses.curve if point.loss is not None]
    return Found(
        report.duration.virtual_seconds,
        report.traffic.bytes_down,
        report.utilisation,
        report.dispatch.idle,
        report.dispatch.conflicts,
        report.ledger_hash,
        tuple(At(point.seconds, point.tokens, point.loss, None) for point in points),
    )


def scaled(content: dict[str, Any]) -> dict[str, Any]:
    """Return the scale model: its bytes and the rates of its links are smaller by the same factor."""
    workers = []
    for worker in content["workers"]:
        link = parse(worker["link"])
        rates = (link.throughput(way) / MBIT / SCALE for way in (link.up, link.down))
        slow = "/".join(f"{rate:g}mbit" for rate in rates)
        workers.append(worker | {"link": f"{worker['link']}/{slow}/0%", "memory_bytes": worker["memory_bytes"] // 60})
    return content | {
        "model": {"architecture": "gpt2", "config": {"hidden_size": 48, "num_layers": 2, "num_heads": 2}},
        "data": {
            "kind": "text",
            "files": files("modules"),
            "context": [64, 128, 256],
            "shard_bytes": content["data"]["shard_bytes"] // SCALE,
        },
        "controller": content["controller"] | {"threads": 1},
        "evaluation": content["evaluation"] | {"times": 400, "rows": 32},
        "network": {"controller_link": f"{10_000 / SCALE:g}mbit"},
        "training": content["training"] | {"batch_size": 2, "local_steps": 20},
        "workers": workers,
    }


def alike(content: dict[str, Any]) -> dict[str, Any]:
    """Rows of one length, in shards that take two tasks each; lines and memory that do not differ."""
    workers = [worker | {"link": "good", "memory_bytes": 24_000_000_000} for worker in content["workers"]]
    data = content["data"] | {"context": 512, "shard_bytes": 400_000}
    return content | {"data": data, "workers": workers}


def alone(content: dict[str, Any], *, large: bool) -> dict[str, Any]:
    """Return the run file of the fastest machine alone."""
    fastest = max(content["workers"], key=lambda worker: worker["speed"])
    training = content["training"]
    if large:
        training = training | {"batch_size": training["batch_size"] * len(content["workers"]), "local_steps": 2}
    return content | {"workers": [fastest | {"link": "none", "memory_bytes": 1 << 34}], "training": training}


def difference(ours: list[float], theirs: list[float]) -> float:
    """Return the probability that pairs differ so by chance; 1 where they do not differ."""
    return float(wilcoxon(ours, theirs).pvalue) if ours != theirs else 1.0


def non_inferiority(ratios: list[float], margin: float = MARGIN) -> tuple[float, float, float]:
    """The geometric mean of paired ratios, its one-sided upper bound at 95%, and how likely they are were it
    1 + `margin` or more.

    >>> mean, bound, chance = non_inferiority([0.98, 1.0, 1.02, 0.99, 1.01])
    >>> f"{mean:.3f} {bound:.3f} {chance:.4f}"
    '1.000 1.015 0.0011'
    """
    logs = [math.log(ratio) for ratio in ratios]
    mean, freedom = statistics.mean(logs), len(logs) - 1
    error = statistics.stdev(logs) / math.sqrt(len(logs))
    bound = math.exp(mean + float(student.ppf(0.95, freedom)) * error)
    return math.exp(mean), bound, float(student.cdf((mean - math.log1p(margin)) / error, freedom)) if error else 0.0


def no_slower(ratios: list[float]) -> str:
    """Return the result of `non_inferiority` in words."""
    if len(ratios) < 2:
        return "one pair tells nothing"
    mean, bound, chance = non_inferiority(ratios)
    verdict = "no slower" if bound < 1.0 + MARGIN else "not shown"
    return f"mean {mean:.3f}, at most {bound:.3f} (95%), p {chance:.4f} for {MARGIN:.0%} slower: {verdict}"


def holm(chances: dict[str, float]) -> dict[str, float]:
    """Return the probabilities, corrected for their number (Holm 1979)."""
    adjusted, most = {}, 0.0
    for number, (name, chance) in enumerate(sorted(chances.items(), key=lambda item: item[1])):
        adjusted[name] = most = max(most, min(1.0, (len(chances) - number) * chance))
    return adjusted


def spread(values: list[float], form: str) -> str:
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


if __name__ == "__main__":
    main()
