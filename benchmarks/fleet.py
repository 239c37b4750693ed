"""What matching is worth where machines, links and tasks differ: one mixed fleet under each scheduler.

    python benchmarks/fleet.py [--seeds 10] [--schedulers fifo,gale_shapley] [--real]

`examples/fleet-mixed.yaml`: fifty machines whose speeds are a hundred times apart, of 2 to 24 GB, behind links from a
phone's to a fast line, which come and go as preemptible GPUs do; rows of three lengths, in shards of 20 MB that each
node fetches before it can work on them and keeps; workers measure the held-out loss. Work is costed only: what is
compared is the virtual time to the token budget, on the same machines, links, departures and returns for each scheduler
(common random numbers). Ratios are of the best of `random`, `round_robin` and `fifo` with the same seed; beside them
Wilcoxon's signed-rank test of the same pairs, with Holm's correction.

With `--real` a scale model of it trains, a hundredth in bytes: a model of 0.1M parameters, shards of 200 kB of the
standard library's modules, links a hundred times slower. Compared is the virtual time to a held-out loss; beside it
stands one machine of the fleet's fastest kind alone, on the same data: its tokens to that loss, and its loss at the
end.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

import yaml
from _races import At, files, reached
from scipy.stats import wilcoxon

from barnraise.assembly.simulation import simulate
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.emulation.report import Report
from barnraise.matching import CATALOG
from barnraise.plan import Purpose, resolve
from barnraise.transport.links.presets import parse

EXAMPLE = Path(__file__).parent.parent / "examples" / "fleet-mixed.yaml"
PLAIN = ("random", "round_robin", "fifo")
RATE = 4000.0
"""Tokens a second of speed 1.0."""

SCALE, SCALED_RATE = 100, 250.0
"""Of the model that trains: how many times smaller it is in bytes, and the rate at which a task takes as long."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=0, help="400M, or 3M with --real")
    parser.add_argument("--schedulers", default=",".join(CATALOG.entries))
    parser.add_argument("--real", action="store_true", help="train a scale model, and compare times to a loss")
    parser.add_argument("--loss", type=float, default=2.6, help="with --real: the one that is waited for")
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    tokens = options.tokens or (3_000_000 if options.real else 400_000_000)
    if options.quick:
        options.seeds, tokens, options.loss = 2, 60_000 if options.real else 4_000_000, 5.4
    names = list(dict.fromkeys([*PLAIN, *options.schedulers.split(",")]))
    content = scaled(yaml.safe_load(EXAMPLE.read_text())) if options.real else yaml.safe_load(EXAMPLE.read_text())
    found: dict[str, list[Report]] = {name: [] for name in names}
    for seed in range(options.seeds):  # all of a seed, so that what there is is comparable
        for name in names:
            found[name].append(play(content, name, seed, tokens, real=options.real))
    nodes = len(content["workers"])
    print(f"{nodes} nodes, {tokens:,} tokens, {options.seeds} seeds; medians (least to most)")
    if options.real:
        loss = options.loss
        lone = [play(alone(content), "fifo", seed, tokens, real=True) for seed in range(options.seeds)]
        compare({name: [time_to(report, loss)[0] for report in reports] for name, reports in found.items()}, found)
        usual = statistics.median(time_to(report, loss)[1] for report in lone)
        print(
            f"to a loss of {loss:g}, tokens over those of one fast machine alone ({usual:,.0f}); the last loss over its"
        )
        for name, reports in found.items():
            epochs = [time_to(ours, loss)[1] / time_to(its, loss)[1] for ours, its in zip(reports, lone, strict=True)]
            ends = [last(ours) / last(its) for ours, its in zip(reports, lone, strict=True)]
            print(f"{name:14}{spread(epochs, '.2f'):>28}{spread(ends, '.3f'):>28}")
    else:
        compare({name: [report.duration.virtual_seconds for report in those] for name, those in found.items()}, found)


def compare(seconds: dict[str, list[float]], found: dict[str, list[Report]]) -> None:
    """A row for each scheduler."""
    best = [min(those) for those in zip(*(seconds[name] for name in PLAIN), strict=True)]
    chances = holm({name: difference(seconds[name], best) for name in seconds if name not in PLAIN})
    head = f"{'':14}{'seconds':>24}{'GB down':>10}{'busy':>8}{'idle':>8}{'conflicts':>11}"
    print(f"{head}{'of the best plain one':>28}{'p, Holm':>10}")
    for name, ours in seconds.items():
        ratios = [its / theirs for its, theirs in zip(ours, best, strict=True)]
        down = statistics.median(report.traffic.bytes_down for report in found[name]) / 1e9
        busy = statistics.median(report.utilisation for report in found[name])
        idle, conflicts = (
            statistics.median(getattr(report.dispatch, what) for report in found[name])
            for what in ("idle", "conflicts")
        )
        told = f"{spread(ratios, '.3f'):>28}{chances[name]:>10.4f}" if name in chances else ""
        print(f"{name:14}{spread(ours, ',.0f'):>24}{down:>10.2f}{busy:>8.1%}{idle:>8.1%}{conflicts:>11.1%}{told}")


def play(content: dict[str, Any], scheduler: str, seed: int, tokens: int, *, real: bool) -> Report:
    """One run to its token budget."""
    changed = {"run": content["run"] | {"seed": seed}, "controller": content["controller"] | {"scheduler": scheduler}}
    run = content | changed | {"training": content["training"] | {"tokens": tokens}}
    nodes, rate = len(content["workers"]), SCALED_RATE if real else RATE
    plan = resolve(load(run), purpose=Purpose.SIMULATE, nodes=nodes)
    return simulate(plan, Trial(nodes, seed=seed, churn=nodes > 1, real=real, tokens_per_second=rate))


def scaled(content: dict[str, Any]) -> dict[str, Any]:
    """The scale model: so many times fewer bytes, on links that carry so many times less."""
    workers = []
    for worker in content["workers"]:
        link = parse(worker["link"])
        rates = {"up": link.up.rate, "down": link.down.rate}
        slow = "/".join(f"{8 * rate / SCALE / 1e6:g}mbit" for rate in rates.values() if rate)
        workers.append(worker | {"link": f"{worker['link']}/{slow}", "memory": worker["memory"] // 60})
    training = {"batch_size": 4, "local_steps": 10, "learning_rate": 0.003}
    return content | {
        "model": {"architecture": "gpt2", "config": {"hidden_size": 48, "num_layers": 2, "num_heads": 2}},
        "data": {
            "kind": "text",
            "files": files("modules"),
            "context": [64, 128, 256],
            "shard_bytes": content["data"]["shard_bytes"] // SCALE,
        },
        "controller": content["controller"] | {"threads": 1, "evaluations": 60, "evaluation_rows": 64},
        "network": {"controller_link": f"{10_000 / SCALE:g}mbit"},
        "training": content["training"] | training,
        "workers": workers,
    }


def alone(content: dict[str, Any]) -> dict[str, Any]:
    """The fastest machine by itself."""
    fastest = max(content["workers"], key=lambda worker: worker["speed"])
    return content | {"workers": [fastest | {"link": "none", "memory": 1 << 34}]}


def curve(report: Report) -> list[At]:
    return [
        At(point.seconds, point.tokens, point.loss, None) for point in report.losses.curve if point.loss is not None
    ]


def time_to(report: Report, loss: float) -> tuple[float, float]:
    """Virtual seconds and tokens; what the whole run took where it never came there."""
    end = (report.duration.virtual_seconds, float(report.tokens))
    return reached(curve(report), loss) or end


def last(report: Report) -> float:
    return curve(report)[-1].loss


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
