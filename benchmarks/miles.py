"""What several machines behind slow links are worth: time, tokens and bytes to the loss that a lone one reaches.

    python benchmarks/miles.py                         the headline: lone, 4 and 8 workers (half an hour, one core)
    python benchmarks/miles.py --sides lone,sync_h5    some sides alone; --list names them all
    python benchmarks/miles.py --tokens 8 --seeds 3    million tokens of the lone worker, seeds

Virtual time, real tensors (`simulate --real`): a GPT-2 of 125,000 parameters on the bytes of Python's standard library,
equal workers of `--rate` tokens a second, each behind `--mbit` and `--delay-ms` one way. A side of n workers trains on
`--excess` times the lone worker's tokens over all, with its schedule ending there. Every side tries the learning rates
given; the best by final loss of the first seed counts. Time begins with the first step: joining is the same for all
(start a process, fetch the data), and is told apart. Pictures go to `--pictures`.
"""

from __future__ import annotations

import argparse
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from barnraise.cli.simulation import Trial, simulate
from barnraise.config import load
from barnraise.emulation.fleet import Machine
from barnraise.emulation.report import Report
from barnraise.plan import Purpose, resolve
from barnraise.transport.presets import parse

MODEL = {"architecture": "gpt2", "config": {"n_embd": 64, "n_layer": 2, "n_head": 4}}
LOCO = {"compression": "sparse_loco", "error_feedback_keep": 1.0, "downlink_compression": "int8"}


INT4_DOWN = {"downlink_compression": "int4"}
INT4 = {"compression": "int4"} | INT4_DOWN


DATA = {"modules": ("/*.py",), "tests": ("/*.py", "/test/*.py")}


@dataclass(frozen=True)
class Side:
    """`workers` machines; synchronous rounds, or a buffer of `buffer` nodes (None: automatic) with overlap."""

    workers: int
    steps: int
    synchronous: bool = False
    buffer: int | str = "auto"
    batch: int = 4
    training: dict[str, Any] = field(default_factory=dict)


SIDES: dict[str, Side] = {
    "lone": Side(1, 30, synchronous=True),
    "lone_batch1": Side(1, 120, batch=1),
    "lone_batch16": Side(1, 30, batch=16),
    "fp32_async_h30": Side(4, 30, training={"merge_lerp": 0.0}),
    "fp32_sync_h30": Side(4, 30, synchronous=True),
    "fp32_sync_h10": Side(4, 10, synchronous=True),
    "fp32_sync_h3": Side(4, 3, synchronous=True),
    "fp32_sync_h10_nesterov": Side(4, 10, synchronous=True, training={"outer_optimizer": "nesterov"}),
    "fp32_sync_h10_outer1.6": Side(4, 10, synchronous=True, training={"outer_learning_rate": 1.6}),
    "fp32_overlap_h10": Side(4, 10, buffer=4, training={"merge_lerp": 0.0}),
    "fp32_overlap_h10_lerp": Side(4, 10, buffer=4, training={"merge_lerp": 0.5}),
    "fp32_overlap_h10_lerp75": Side(4, 10, buffer=4, training={"merge_lerp": 0.75}),
    "loco64_async_h30": Side(4, 30, training=LOCO | {"merge_lerp": 0.0}),
    "loco64_overlap_h10": Side(4, 10, buffer=4, training=LOCO | {"merge_lerp": 0.0}),
    "loco64_sync_h10": Side(4, 10, synchronous=True, training=LOCO),
    "loco16_sync_h10": Side(4, 10, synchronous=True, training=LOCO | {"compression_ratio": 1 / 16}),
    "loco16_sync_h10_nokeep": Side(
        4, 10, synchronous=True, training=LOCO | {"compression_ratio": 1 / 16, "error_feedback_keep": 0.0}
    ),
    "int4_sync_h5": Side(4, 5, synchronous=True, training=INT4),
    "int4_sync_h10": Side(4, 10, synchronous=True, training=INT4),
    "int4_overlap_h10": Side(4, 10, buffer=4, training=INT4),
    "int4_overlap_h5": Side(4, 5, buffer=4, training=INT4),
    "int4_overlap_h10_lerp60": Side(4, 10, buffer=4, training=INT4 | {"merge_lerp": 0.6}),
    "loco4_sync_h5": Side(4, 5, synchronous=True, training=LOCO | INT4_DOWN | {"compression_ratio": 1 / 4}),
    "int4_overlap_h5_8": Side(8, 5, buffer=8, training=INT4),
}
SIDES |= {
    f"int4_overlap_h5_lerp{kept}": Side(4, 5, buffer=4, training=INT4 | {"merge_lerp": kept / 100})
    for kept in (30, 40, 60, 75)
}
HEADLINE = ["lone", "int4_sync_h5", "int4_overlap_h5", "int4_overlap_h5_8"]


def play(side: Side, options: argparse.Namespace, rate: float, seed: int) -> Report:
    tokens = round(options.tokens * 1e6 * (1.0 if side.workers == 1 else options.excess))
    content = {
        "run": {"name": "miles", "seed": seed},
        "model": MODEL,
        "data": {
            "kind": "text",
            "files": [sysconfig.get_path("stdlib") + part for part in DATA[options.data]],
            "context": 128,
        },
        "controller": {
            "evaluations": 24,
            "evaluation_rows": 256,
            "checkpoint_seconds": 1e6,
            "use_async_training": not side.synchronous,
            "buffer_size": side.buffer,
            "sync_window": 1e6,
            "sync_longest_wait": 1e6,
        },
        "training": {
            "tokens": tokens,
            "batch_size": side.batch,
            "local_steps": side.steps,
            "learning_rate": rate,
            "schedule": "cosine",
            "warmup_tokens": tokens // 20,
            "betas": [0.9, 0.95],
            "weight_decay": 0.1,
            "auto_tune": False,
        }
        | side.training,
    }
    link = parse(f"{options.mbit:g}mbit/{options.delay_ms:g}ms")
    plan = resolve(load(content), purpose=Purpose.SIMULATE, nodes=side.workers)
    fleet = [Machine(f"n{index}", options.rate, link) for index in range(side.workers)]
    return simulate(plan, Trial(side.workers, fleet=fleet, real=True, seed=seed))


def reached(report: Report, loss: float) -> tuple[float, float, float] | None:
    """Seconds of training, million tokens and MB on all links until `loss`, between evaluations on a line."""
    start = report.first_task_seconds or 0.0
    for before, after in zip(report.curve, report.curve[1:], strict=False):
        if before.loss is not None and after.loss is not None and after.loss <= loss:
            share = (before.loss - loss) / (before.loss - after.loss)
            both = [(a, b) for a, b in zip(before, after, strict=True) if a is not None and b is not None]
            seconds, tokens, _, up, down = (a + share * (b - a) for a, b in both)
            return seconds - start, tokens / 1e6, (up + down) / 1e6
    return None


def picture(path: Path, found: dict[str, Report]) -> None:
    """Loss against time, tokens and bytes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 4), sharey=True, layout="constrained")
    for name, report in found.items():
        points = [point for point in report.curve if point.tokens]
        start = report.first_task_seconds or 0.0
        losses = [point.loss for point in points]
        axes[0].plot([point.seconds - start for point in points], losses, label=name)
        axes[1].plot([point.tokens / 1e6 for point in points], losses)
        axes[2].plot([(point.bytes_up + point.bytes_down) / 1e6 for point in points], losses)
    axes[2].set_xscale("log")
    for axis, label in zip(axes, ("virtual seconds of training", "million tokens", "MB on all links"), strict=True):
        axis.set_xlabel(label)
        axis.grid(True, color="#E4E4E4")
    axes[0].set_ylabel("held-out loss, nats a token")
    axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name the sides")
    parser.add_argument("--sides", default=",".join(HEADLINE))
    parser.add_argument("--rates", default="0.004,0.008", help="learning rates that every side tries")
    parser.add_argument("--tokens", type=float, default=2.0, help="of the lone worker, millions")
    parser.add_argument("--excess", type=float, default=1.5, help="tokens of several workers over the lone one's")
    parser.add_argument("--data", choices=DATA, default="tests", help="without or with Python's own tests (5 or 18 MB)")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rate", type=float, default=8_000.0, help="tokens a second of a worker")
    parser.add_argument("--mbit", type=float, default=10.0)
    parser.add_argument("--delay-ms", type=float, default=25.0, help="one way")
    parser.add_argument("--pictures", type=Path)
    options = parser.parse_args()
    if options.list:
        print("\n".join(SIDES))
        return
    torch.set_num_threads(1)
    names = options.sides.split(",")
    print(
        f"{options.tokens:g}M tokens of a lone worker, {options.excess:g} times that for several; "
        f"{options.rate:,.0f} tokens/s each, {options.mbit:g} Mbit/s, {options.delay_ms:g} ms one way"
    )
    columns = f"{'loss':>8}{'seconds':>9}{'busy':>7}{'MB up':>9}{'MB down':>9}"
    print(f"{'side':<26}{'lr':>7}{'seed':>5}{columns}  to lone's loss")
    pictures: dict[str, Report] = {}
    targets: dict[int, tuple[float, float]] = {}
    for name in names:
        side, best = SIDES[name], 0.0
        for seed in range(options.seeds):
            tried: dict[float, Report] = {}
            for rate in [float(text) for text in options.rates.split(",")] if seed == 0 else [best]:
                tried[rate] = report = play(side, options, rate, seed)
                assert report.final_loss is not None
                seconds = report.virtual_seconds - (report.first_task_seconds or 0.0)
                ideal = report.tokens / side.workers / options.rate
                note = ""
                if seed in targets and name != "lone":
                    loss, lone_seconds = targets[seed]
                    at = reached(report, loss)
                    note = f"  {at[0] / lone_seconds:.0%} of its time, {at[1]:.2f}M tokens" if at else "  not reached"
                print(
                    f"{name:<26}{rate:7.3f}{seed:5d}{report.final_loss:8.4f}{seconds:9.1f}{ideal / seconds:7.1%}"
                    f"{report.bytes_up / 1e6:9.2f}{report.bytes_down / 1e6:9.2f}{note}",
                    flush=True,
                )
            best = min(tried, key=lambda rate: tried[rate].final_loss or 0.0)
            chosen = tried[best]
            if name == "lone":
                targets[seed] = (chosen.final_loss or 0.0, chosen.tokens / options.rate)
            if seed == 0:
                pictures[name] = chosen
    if options.pictures:
        options.pictures.mkdir(parents=True, exist_ok=True)
        picture(options.pictures / "miles.png", pictures)


if __name__ == "__main__":
    main()
