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
import re
import statistics
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from _races import DATA, At, Known, files, picture, reached
from peers.common import ADAMW

from barnraise.assembly.simulation import simulate
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.emulation.fleet import Machine
from barnraise.emulation.simulator import Point
from barnraise.plan import Purpose, resolve
from barnraise.transport.links.presets import parse

SHAPE = {"n_embd": 64, "n_layer": 2, "n_head": 4, "activation_function": "gelu_pytorch_tanh"}
MODEL = {"architecture": "gpt2", "config": SHAPE}
HEADLINE = (
    "lone_batch8@0.006,lone_batch8_average10@0.006,fp32_sync_h5@0.008,diloco_h30_e2.4@0.004,"
    "diloco_int4_h30_e2.4@0.004,int4_overlap_h5_momentum100@0.008,"
    "loco8-loco4_overlap_h3_momentum100@0.011,8x_loco8-loco4_overlap_h3_momentum100_e1.96@0.011"
)
QUICK = "lone_h5@0.006,lone_h5_average10@0.006,loco8-loco4_overlap_h3_momentum100@0.011"
GOLDEN = 0.618
"""Share of the rows by which each order begins later than the one before."""

MODES: dict[str, dict[str, Any]] = {
    "sync": {"use_async_training": False},
    "overlap": {"use_async_training": True, "buffer_size": "all"},
    "async": {"use_async_training": True, "buffer_size": "auto"},
}
OUTER = {"outer_optimizer": "nesterov"}


@dataclass
class Side:
    """The settings that a name stands for; `excess` None: that of the command line."""

    workers: int = 4
    steps: int = 30
    batch: int = 4
    excess: float | None = None
    hosted: bool = False
    training: dict[str, Any] = field(default_factory=dict)
    controller: dict[str, Any] = field(default_factory=lambda: dict(MODES["sync"]))

    @classmethod
    def named(cls, name: str) -> Side:
        side = cls()
        for part in name.split("_"):
            side.take(part)
        return side

    def take(self, part: str) -> None:
        found = re.fullmatch(r"([a-z]*)(\d+\.?\d*)?(x|-[a-z]+\d+\.?\d*)?", part)
        word, number, rest = found.groups(default="") if found else (part, "", "")
        if (not number) != (
            word in ("lone", "diloco", "sync", "overlap", "async", "nesterov", "nokeep", "tuned", "host", "muon")
        ):
            raise SystemExit(f"{part!r} is no part of a side's name; --help lists them")
        match word:
            case "lone":
                self.workers, self.excess = 1, 1.0
            case "diloco":
                self.training |= codec("fp32", "fp32") | OUTER
            case "fp" | "int" | "loco" | "bits":
                up, _, down = part.partition("-")
                self.training |= codec(up, down or up)
            case "sync" | "overlap" | "async":
                self.controller = dict(MODES[word])
            case "h":
                self.steps = int(number)
            case "e":
                self.excess = float(number)
            case "batch":
                self.batch = int(number)
            case "beta":
                self.training["betas"] = [0.9, float(number)]
            case "decay":
                self.training["weight_decay"] = float(number)
            case "average":
                self.training["average"] = int(number) / 100
            case "momentum":
                self.training["version_momentum"] = int(number) / 100
            case "tuned":
                self.training["auto_tune"] = True
            case "muon":
                self.training["inner_optimizer"] = "muon"
            case "host":
                self.hosted = True
            case "lerp":
                self.training["merge_lerp"] = int(number) / 100
            case "nesterov":
                self.training |= OUTER
            case "delayed":
                self.training |= {"outer_optimizer": "delayed_nesterov", "outer_options": {"delay": int(number)}}
            case "outer":
                self.training["outer_learning_rate"] = float(number)
            case "nokeep":
                self.training["error_feedback_keep"] = 0.0
            case "" if rest == "x":
                self.workers = int(number)
            case _:
                raise SystemExit(f"{part!r} is no part of a side's name; --help lists them")


def codec(up: str, down: str) -> dict[str, Any]:
    """Settings for codecs: fp32, int8, int4, loco16 (1 of 16 elements in 2 bits), bits0.8; these two with *keep*."""
    found: dict[str, Any] = {}
    for way, text in (("", up), ("downlink_", down)):
        if text.startswith("loco"):
            ratio = 1 / int(text.removeprefix("loco"))
            found |= {way + "compression": "sparse_loco"}
            found |= {"downlink_options": {"ratio": ratio}} if way else {"compression_ratio": ratio}
        elif text.startswith("bits"):
            options = {"bits": float(text.removeprefix("bits"))}
            found |= {way + "compression": "entropy_coded", (way or "compression_") + "options": options}
        else:
            found[way + "compression"] = "none" if text == "fp32" else text
    return found | ({"error_feedback_keep": 1.0} if up.startswith(("loco", "bits")) else {})


@dataclass(frozen=True)
class Found:
    """One trial's outcome. Time and bytes count from the first step on; `busy` is the share of time in steps."""

    name: str
    learning_rate: float
    seed: int
    workers: int
    tokens: int
    loss: float
    seconds: float
    busy: float
    curve: list[Point]
    order: int = 0

    def points(self) -> list[At]:
        """The curve, from the first evaluated version on."""
        alone = self.workers == 1
        return [
            At(one.seconds, one.tokens, one.loss, None if alone else one.bytes_up + one.bytes_down)
            for one in self.curve
            if one.loss is not None and one.tokens
        ]

    def line(self, lone: Found | None = None) -> str:
        up, down = self.curve[-1].bytes_up / 1e6, self.curve[-1].bytes_down / 1e6
        told = ""
        if lone and lone is not self:
            at = reached(self.points(), lone.loss)
            told = f"  {at[0] / lone.seconds:.1%} of its time, {at[1] / 1e6:.2f}M tokens" if at else "  not reached"
        seed = f"{self.seed}.{self.order}" if self.order else str(self.seed)
        return (
            f"{self.name:<30}{self.learning_rate:7.3f}{seed:>5}{self.loss:8.4f}{self.seconds:9.1f}{self.busy:7.1%}"
            f"{up:9.2f}{down:9.2f}{told}"
        )


def play(name: str, learning_rate: float, seed: int, order: int, options: argparse.Namespace) -> Found:
    """One run of the side `name` from its first to its last step."""
    torch.set_num_threads(1)
    side = Side.named(name)
    tokens = round(options.tokens * 1e6 * (side.excess or options.excess))
    if side.controller.get("buffer_size") == "all":
        side.controller["buffer_size"] = side.workers
    content: dict[str, Any] = {
        "run": {"name": "miles", "seed": seed},
        "model": MODEL,
        "data": {"kind": "text", "files": files(options.data), "context": 128},
        "controller": {
            "evaluations": options.evaluations,
            "evaluation_rows": 256,
            "checkpoint_seconds": 1e6,
            "sync_window": 1e6,
            "sync_longest_wait": 1e6,
        }
        | side.controller,
        "training": {
            "tokens": tokens,
            "batch_size": side.batch,
            "local_steps": side.steps,
            "learning_rate": learning_rate,
            "schedule": "cosine",
            "warmup_tokens": tokens // 20,
            "auto_tune": False,
        }
        | ADAMW
        | side.training,
    }
    text = f"{options.mbit:g}mbit/{options.delay_ms:g}ms"
    slow = parse(text)
    link = slow if side.workers > 1 else parse("10gbit/0ms")  # alone there is nothing to wait for
    if side.hosted:
        content["network"] = {"controller_link": text}
    plan = resolve(load(content), purpose=Purpose.SIMULATE, nodes=side.workers)
    fleet = [Machine(f"n{index}", options.rate, link) for index in range(side.workers)]
    skipped = order * GOLDEN % 1.0
    report = simulate(plan, Trial(side.workers, fleet=fleet, real=True, seed=seed, skipped=skipped))
    assert report.losses.final_loss is not None
    assert report.duration.first_task_seconds is not None
    curve = [
        point._replace(
            seconds=max(0.0, point.seconds - report.duration.first_task_seconds),
            bytes_down=max(0, point.bytes_down - report.traffic.joining_bytes),
        )
        for point in report.losses.curve
    ]
    seconds = report.duration.virtual_seconds - report.duration.first_task_seconds
    busy = report.tokens / side.workers / options.rate / seconds
    workers, tokens, loss = side.workers, report.tokens, report.losses.final_loss
    return Found(name, learning_rate, seed, workers, tokens, loss, seconds, busy, curve, order)


def trials(
    wanted: Iterable[tuple[str, float, int, int]], options: argparse.Namespace, pool: ProcessPoolExecutor
) -> Iterator[Found]:
    """The outcome of each, in order; what `--results` holds for the same settings is not run again."""
    known = Known(options.results)
    waiting: list[Found | Future[Found]] = []
    for trial in wanted:
        excess = Side.named(trial[0]).excess or options.excess
        usual = trial if trial[-1] else trial[:-1]  # as results of before there were orders
        key = [options.tokens, excess, options.data, options.rate, options.mbit, options.delay_ms, *usual]
        if found := known.get(key, Found):
            waiting.append(found)
            continue
        future = pool.submit(play, *trial, options)
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
