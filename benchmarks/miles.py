"""Measure the gain of several machines behind slow links: time, tokens and bytes to the loss of a lone machine.

    python benchmarks/miles.py --results found.jsonl --pictures folder      the headline (hours; found.jsonl resumes it)
    python benchmarks/miles.py --tokens 2 --seeds 1 --rates 0.008 --sides lone,int4_sync_h5          a short look

Virtual time, real tensors (`simulate --real`): a GPT-2 of 125,000 parameters on the bytes of Python's standard library,
equal workers of `--rate` tokens a second, each behind `--mbit` and `--delay-ms` one way. A side of n workers trains on
`--excess` times the lone worker's tokens over all, with its schedule ending there. A side tries its own learning rates
(`lone@0.004:0.006`) or those of `--rates`; the best by final loss of the first seed counts. Time begins with the first
step: joining is the same for all (start a process, fetch the data), and is told apart.

A seed chooses the model's first parameters, the held-out files and the order of the rows; each of `--orders` after the
first takes the same rows in another one. A side's times are those to the lone worker's loss on the same seed and order,
and their mean comes with its interval (95%, Student's t). With several lone ones the first is the target.

A side's name says what it does, in parts:

    lone                     one worker; `batch16`: 16 rows a step instead of 4
    int4_overlap_h5          4 workers send and get 4 bits, exchange every 5 steps and train on meanwhile
    loco8-loco4_sync_h10     1 of 8 elements up, 1 of 4 down (`sparse_loco`), all wait for each round's version
    bits0.8-bits1.6_sync_h5  0.8 bits an element up, 1.6 down (`entropy_coded`)
    fp32_async_h30           a version for each contribution (K = 1)
    8x_..._e1.9              8 workers, 1.9 times the lone worker's tokens
    ..._momentum100          version_momentum: momentum of the fleet, else of one's own
    ..._average10            evaluation.average: evaluate an average of versions that looks back over 10% of the run
    diloco_int4_h30_e2.4     DiLoCo (Nesterov outside, rounds that wait) whose exchanges take 4 bits both ways
    ..._beta0.95_decay0.1    AdamW's decay of the second moment and of the weights, else 0.99 and 0.01
    ..._tuned                auto_tune: steps and densities from these on, as the links allow
    ..._muon                 Muon for the hidden matrices, at AdamW's rate
    ..._host                 the controller is behind such a link too
    ..._lerp40, _nesterov, _delayed1, _outer1.6, _nokeep      merge_lerp, the step outside, error feedback without keep
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from _races import DATA, Known, files, picture, reached
from _sides import Found, Setting, Side, Task, play

HEADLINE = (
    "lone_batch8@0.006,lone_batch8_average10@0.006,fp32_sync_h5@0.008,diloco_h30_e2.4@0.004,"
    "diloco_int4_h30_e2.4@0.004,int4_overlap_h5_momentum100@0.008,"
    "loco8-loco4_overlap_h3_momentum100@0.011,8x_loco8-loco4_overlap_h3_momentum100_e1.96@0.011"
)
QUICK = "lone_h5@0.006,lone_h5_average10@0.006,loco8-loco4_overlap_h3_momentum100@0.011"


def setting_of(options: argparse.Namespace) -> Setting:
    """Return the budget, the workers and the links of the command line."""
    return Setting(
        Task(files(options.data)), options.tokens, options.excess, options.rate, options.mbit, options.delay_ms,
        options.evaluations,
    )  # fmt: skip


def trials(
    wanted: Iterable[tuple[str, float, int, int]], options: argparse.Namespace, pool: ProcessPoolExecutor
) -> Iterator[Found]:
    """The outcome of each, in order; what `--results` holds for the same settings is not run again."""
    known, setting = Known(options.results), setting_of(options)
    waiting: list[Found | Future[Found]] = []
    for trial in wanted:
        excess = Side.named(trial[0]).excess or options.excess
        usual = trial if trial[-1] else trial[:-1]  # as results of before there were orders
        key = [options.tokens, excess, options.data, options.rate, options.mbit, options.delay_ms, *usual]
        if found := known.get(key, Found):
            waiting.append(found)
            continue
        future = pool.submit(play, *trial, setting)
        future.add_done_callback(partial(_keep, known, key))
        waiting.append(future)
    for one in waiting:
        yield one.result() if isinstance(one, Future) else one


def _keep(known: Known, key: list[object], future: Future[Found]) -> None:
    if not future.cancelled() and future.exception() is None:
        known.add(key, future.result())


def race(rates: dict[str, list[float]], options: argparse.Namespace, pool: ProcessPoolExecutor) -> Iterator[str]:
    """Each trial as a line of a table, then the sides' medians."""
    columns = f"{'loss':>8}{'seconds':>9}{'busy':>7}{'MB up':>9}{'MB down':>9}"
    yield f"{'side':<30}{'lr':>7}{'seed':>5}{columns}  to lone's loss"
    first: dict[str, list[Found]] = {name: [] for name in rates}
    for found in trials([(name, rate, 0, 0) for name, tried in rates.items() for rate in tried], options, pool):
        first[found.name].append(found)
        yield found.line()
    best = {name: min(tried, key=lambda one: one.loss) for name, tried in first.items()}
    more = [(seed, order) for seed in range(options.seeds) for order in range(options.orders) if seed or order]
    others = [(name, best[name].learning_rate, *which) for which in more for name in rates]
    chosen = {name: [one] for name, one in best.items()}
    for found in trials(others, options, pool):
        chosen[found.name].append(found)
    lone = next((ones for name, ones in chosen.items() if Side.named(name).workers == 1), [])
    targets = {(one.seed, one.order): one for one in lone}
    yield ""
    for name, all_seeds in chosen.items():
        for one in all_seeds:
            yield one.line(targets.get((one.seed, one.order)))
        if len(all_seeds) > 1:
            yield f"{name:<30}{'mean':>12}  {intervals(all_seeds, targets)}"
    if options.pictures:
        curves = {name: one.points() for name, one in best.items()}
        picture(options.pictures / "miles.png", curves, "virtual seconds of training")


def intervals(trials: list[Found], targets: dict[tuple[int, int], Found]) -> str:
    """Over seeds and orders: the loss beside the lone worker's, and the time to its loss, each with its interval."""
    told = []
    beside = [one.loss / targets[one.seed, one.order].loss - 1.0 for one in trials if (one.seed, one.order) in targets]
    if any(beside):
        told.append(f"loss {interval(beside)} above the lone one's")
    times = []
    for one in trials:
        target = targets.get((one.seed, one.order))
        if target and target is not one and (at := reached(one.points(), target.loss)):
            times.append(at[0] / target.seconds)
    if len(times) == len(trials):
        told.append(f"{interval(times)} of its time")
    return ", ".join(told) or f"loss {statistics.mean(one.loss for one in trials):.4f}"


def interval(values: list[float]) -> str:
    """Mean and half the width of its 95% interval, as shares."""
    from scipy.stats import t

    half = float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    return f"{statistics.mean(values):.1%} ± {half:.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sides", default=HEADLINE)
    parser.add_argument("--rates", default="0.006:0.012", help="learning rates of the sides that name none")
    parser.add_argument("--tokens", type=float, default=16.0, help="of the lone worker, millions")
    parser.add_argument("--excess", type=float, default=1.55, help="tokens of several workers over the lone one's")
    parser.add_argument("--data", choices=DATA, default="tests", help="without or with Python's own tests (5 or 18 MB)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--orders", type=int, default=1, help="orders of the rows for each seed")
    parser.add_argument("--quick", action="store_true", help="does it run? tiny, and its figures say nothing")
    parser.add_argument("--rate", type=float, default=4_444.0, help="tokens a second of a worker; 4444: 16M an hour")
    parser.add_argument("--mbit", type=float, default=10.0)
    parser.add_argument("--delay-ms", type=float, default=25.0, help="one way")
    parser.add_argument("--evaluations", type=int, default=24, help="of the held-out loss, over a run")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="trials at a time")
    parser.add_argument("--results", type=Path, help="a file of trials that are done; new ones are added")
    parser.add_argument("--pictures", type=Path, help="a folder for the curves")
    options = parser.parse_args()
    if options.quick:
        options.tokens, options.seeds, options.orders, options.data = 0.02, 1, 2, "modules"
        options.sides, options.processes = QUICK, 1
    rates: dict[str, list[float]] = {}
    for text in options.sides.split(","):
        name, _, own = text.partition("@")
        Side.named(name)
        rates[name] = [float(rate) for rate in (own or options.rates).split(":")]
    print(
        f"{options.tokens:g}M tokens of a lone worker, {options.excess:g} times that for several; "
        f"{options.rate:,.0f} tokens/s each, {options.mbit:g} Mbit/s, {options.delay_ms:g} ms one way"
    )
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        for line in race(rates, options, pool):
            print(line, flush=True)


if __name__ == "__main__":
    main()
