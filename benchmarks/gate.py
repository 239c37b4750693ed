"""Measure the cost of the loss gate for each version, beside training on as many rows.

    python benchmarks/gate.py [--sizes small,medium]

Nine updates in 4 bits of a GPT-2 that has learnt nothing, under the rule of `serve`, rows of 128 tokens. The gate draws
64 rows. *Alike*: all updates are honest. *Attacked*: two of them lead uphill. CPU seconds on one thread, of one call
after another that was not counted; `training` are forward and backward passes over 64 rows in batches of four.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import _machine
import torch
from _races import files
from torch import Tensor

from barnraise import aggregation, compression, training
from barnraise.aggregation.defaults import AUTOMATIC_F, DEFENDED, GATE_ROWS, TRUSTING
from barnraise.controller.state import actions, effects
from barnraise.controller.tensors.evaluator import Evaluator
from barnraise.controller.tensors.parameter_server import ParameterServer
from barnraise.controller.tensors.weigher import Weigher
from barnraise.core.types import ParameterRange
from barnraise.data.shards import Dataset
from barnraise.data.text import build as build_data
from barnraise.models.build import build
from barnraise.models.config import describe
from barnraise.models.exchange.record import Exchange
from barnraise.models.memory import GATED_ROWS
from barnraise.training.local import LocalTrainer, batch_loss

Result = TypeVar("Result")

SHAPES = {
    "tiny": {"hidden_size": 32, "num_layers": 1, "num_heads": 2},
    "small": {"hidden_size": 256, "num_layers": 4, "num_heads": 4},
    "medium": {"hidden_size": 512, "num_layers": 8, "num_heads": 8},
}
NODES, LIARS, CONTEXT = 9, 2, 128

SPREAD = 2.0
"""How far an update is from the honest mean, in lengths of that mean: a lie leads as far uphill, so no rule sees it."""


class Bench:
    """A controller's parameter server and gate with the updates of one version."""

    def __init__(self, folder: Path, size: str) -> None:
        build_data(folder, [Path(name) for name in files("modules")[:8]], context=CONTEXT)
        dataset = Dataset.open(folder)
        config = describe({"architecture": "gpt2", "config": SHAPES[size]}, dataset.meta.vocab_size, CONTEXT)
        torch.manual_seed(0)
        self.trainer = LocalTrainer(build(config), optimizer="sgd", options={"momentum": 0.0}, gradient_clip=None)
        self.start = self.trainer.flat.vector.clone()
        self.weigher = Weigher(Evaluator(config, Exchange.of(config), dataset, GATE_ROWS))
        self.rows = dataset.rows(0, 0, GATE_ROWS)["tokens"].astype("int64")
        self.train()
        self.downhill = self.trainer.flat.gradient.clone() * 0.01

    def train(self) -> None:
        for begin in range(0, GATE_ROWS, GATED_ROWS):
            rows = self.rows[begin : begin + GATED_ROWS]
            batch = {"input_ids": rows, "labels": rows}
            trainer = self.trainer
            torch.autograd.backward(batch_loss(trainer.problem, trainer.module, batch, trainer.device))

    def updates(self, liars: int) -> list[Tensor]:
        noise = torch.Generator().manual_seed(1)
        length = (SPREAD if liars else 0.1) * float(self.downhill.norm()) / len(self.downhill) ** 0.5
        found = [self.downhill + length * torch.randn(len(self.downhill), generator=noise) for _ in range(NODES)]
        return [*found[liars:], *[self.downhill * (1.0 - SPREAD)] * liars]

    def slots(self, updates: list[Tensor], payloads: dict[int, bytes]) -> tuple[actions.Slot, ...]:
        codec, whole = compression.create("int4"), ParameterRange(0, len(self.start))
        for number, update in enumerate(updates):
            payloads[number] = bytes(codec.encode(update).payload)
        return tuple(
            actions.Slot(f"n{number}", whole, (actions.Held(number, 1.0, 0),)) for number in range(len(updates))
        )

    def server(self) -> ParameterServer:
        return ParameterServer(
            self.start.clone(),
            0,
            rule=aggregation.create(list(DEFENDED), f=AUTOMATIC_F, fallback=TRUSTING),
            codecs=[compression.create("int4")],
            downlink=compression.create("int4"),
            outer=training.create("sgd"),
        )

    def version(self) -> tuple[float, object]:
        """Seconds of making it, without a gate."""
        payloads: dict[int, bytes] = {}
        slots = self.slots(self.updates(0), payloads)
        return seconds(lambda: self.server().aggregate(1, slots, payloads.__getitem__))

    def gate(self, liars: int) -> tuple[float, int]:
        """Seconds of the gate, and how many nodes it leaves out."""
        payloads: dict[int, bytes] = {}
        slots = self.slots(self.updates(liars), payloads)
        asked = effects.Gate(1, 1, slots, 1.0, most=NODES // 2, rows=GATE_ROWS, seed=5)
        server = self.server()
        took, (out, _) = seconds(lambda: self.weigher.excluded(server, asked, payloads.__getitem__))
        return took, len(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="small,medium", help=", ".join(SHAPES))
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(_machine.look())
    print(f"{'model':8}{'parameters':>12}{'version':>9}{'training':>10}{'alike':>20}{'attacked':>20}")
    for size in ["tiny"] if options.quick else options.sizes.split(","):
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(Path(folder), size)
            version, training_seconds = bench.version()[0], seconds(bench.train)[0]
            row = f"{size:8}{len(bench.start):>12,}{version:>9.2f}{training_seconds:>10.2f}"
            for liars in (0, LIARS):
                took, out = bench.gate(liars)
                row += f"{f'{took:.2f}, {out} left out':>20}"
            print(row, flush=True)


def seconds(work: Callable[[], Result]) -> tuple[float, Result]:
    """Return the CPU seconds of the second of two calls, and its result."""
    work()
    began = time.process_time()
    found = work()
    return time.process_time() - began, found


if __name__ == "__main__":
    main()
