"""Sides of a comparison in virtual time with real tensors: barnraise with the settings that a side's name stands for.

`miles.py` and `reach.py` train a tiny model on the CPU, `gpu_miles.py` one of GPT-2's size on a card.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from _races import At, reached
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
MEMORY = 1 << 40
"""Bytes of a worker: no run is refused."""

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


@dataclass(frozen=True)
class Task:
    """The model and the rows that all sides train on, and the device and the threads that compute them."""

    data: list[str]
    model: Mapping[str, Any] = field(default_factory=lambda: MODEL)
    tokenizer: str | None = None  # None: bytes
    context: int = 128
    held_out: int = 256  # rows of an evaluation
    adamw: Mapping[str, Any] = field(default_factory=lambda: ADAMW)
    precision: str = "float32"
    device: str = "cpu"
    threads: int = 1

    def content(self, name: str, seed: int) -> dict[str, Any]:
        """Return the sections of a run file that all sides have in common."""
        data: dict[str, Any] = {"kind": "text", "files": self.data, "context": self.context}
        return {
            "run": {"name": name, "seed": seed},
            "model": self.model,
            "data": data | ({"tokenizer": self.tokenizer} if self.tokenizer else {}),
            "training": {"precision": self.precision} | self.adamw,
        }


@dataclass(frozen=True)
class Setting:
    """The budget, the machines and the links of all sides: equal workers of `rate` tokens a second, each behind a link.

    `flops` are operations a second of the machine that evaluates; None: a core's.
    """

    task: Task
    tokens: float  # millions, of a lone worker
    excess: float  # tokens of several workers over the lone one's
    rate: float
    mbit: float
    delay_ms: float  # one way
    evaluations: int
    flops: float | None = None


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


def skipped_by(order: int) -> float:
    """Return the share of the rows after which this order begins."""
    return order * GOLDEN % 1.0


def play(name: str, learning_rate: float, seed: int, order: int, setting: Setting) -> Found:
    """One run of the side `name` from its first to its last step."""
    torch.set_num_threads(setting.task.threads)
    side = Side.named(name)
    tokens = round(setting.tokens * 1e6 * (side.excess or setting.excess))
    if side.controller.get("buffer_size") == "all":
        side.controller["buffer_size"] = side.workers
    content = setting.task.content("miles", seed)
    content["controller"] = {
        "evaluations": setting.evaluations,
        "evaluation_rows": setting.task.held_out,
        "checkpoint_seconds": 1e6,
        "sync_window": 1e6,
        "sync_longest_wait": 1e6,
        "threads": setting.task.threads,
    } | side.controller
    content["training"] |= {
        "tokens": tokens,
        "batch_size": side.batch,
        "local_steps": side.steps,
        "learning_rate": learning_rate,
        "schedule": "cosine",
        "warmup_tokens": tokens // 20,
        "auto_tune": False,
    } | side.training
    text = f"{setting.mbit:g}mbit/{setting.delay_ms:g}ms"
    slow = parse(text)
    link = slow if side.workers > 1 else parse("10gbit/0ms")  # alone there is nothing to wait for
    if side.hosted:
        content["network"] = {"controller_link": text}
    plan = resolve(load(content), purpose=Purpose.SIMULATE, nodes=side.workers)
    fleet = [Machine(f"n{index}", setting.rate, link, MEMORY) for index in range(side.workers)]
    trial = Trial(
        side.workers, fleet=fleet, real=True, seed=seed, skipped=skipped_by(order), device=setting.task.device,
        flops=setting.flops,
    )  # fmt: skip
    report = simulate(plan, trial)
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
    busy = report.tokens / side.workers / setting.rate / seconds
    workers, tokens, loss = side.workers, report.tokens, report.losses.final_loss
    return Found(name, learning_rate, seed, workers, tokens, loss, seconds, busy, curve, order)
