"""Measure how far the results of two honest machines differ for one stateless task: the tolerance that an audit needs.

    python benchmarks/repeats.py [--seeds 3] [--tokens 400000] [--results FILE]
    python benchmarks/repeats.py --shapes 1x32 3x96 6x128 --steps 10 30 100 --precisions float32 --codecs int4

Three workers train a small GPT-2 (layers x width; 2x32 unless --shapes names others) on the modules of the standard
library, in versions of 8 bits and tasks of --steps local steps. Each task is done again at once, from the same
versions to the bit: in the same way, with two threads, with a row at a time through the model as a node of little
memory does, in versions that are taken back from later ones and so are rounded, and, where there is one, on an
accelerator; and from parameters that are perturbed, as it is done again once a result was contradicted. Distances are
shares of an update's length, of what is sent: contributions of 4 bits, or uncompressed. `apart` are the tasks whose
distance is above `trust.repeats.TOLERANCE`; `convicted` those of them whose perturbed repetition agrees with the same
machine's first one so well that two such machines convict a third one of another kind.
"""

from __future__ import annotations

import argparse
import copy
import os
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import torch
from _races import Known, files
from torch import Tensor

from barnraise.assembly.simulation import simulate
from barnraise.assembly.trial import Trial
from barnraise.config import load
from barnraise.core.threads import finished
from barnraise.core.types import Contribution, News, Train
from barnraise.data.shards import Dataset
from barnraise.plan import Purpose, resolve
from barnraise.training.local import LocalTrainer
from barnraise.trust.repeats import CLEARLY, PERTURBATION, TOLERANCE
from barnraise.wire.messages import Inner, WorkerSettings
from barnraise.worker.executor import WorkerExecutor
from barnraise.worker.past import Perturbed, Versions
from barnraise.worker.replica import Fetched

NODES = ("ann", "bob", "cat")
WAYS = ("the same again", "two threads", "a row at a time", "rounded versions", "accelerator", "perturbed")


@dataclass(frozen=True)
class Found:
    """The distances of each way, one for each task."""

    distances: dict[str, list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=400_000)
    parser.add_argument("--shapes", nargs="+", default=["2x32"], help="layers x width of the model")
    parser.add_argument("--steps", nargs="+", type=int, default=[20], help="local steps of a task")
    parser.add_argument("--precisions", nargs="+", default=list(TOLERANCE), choices=list(TOLERANCE))
    parser.add_argument("--codecs", nargs="+", default=["none", "int4"], help="what contributions are compressed with")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS, help="in which a task is done again")
    parser.add_argument("--results", type=Path, help="a file of what was found before, which is added to")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="runs at a time")
    parser.add_argument("--quick", action="store_true", help="does it run? small, and its figures say nothing")
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.tokens = 1, 20_000
    known, accelerator = Known(options.results), torch.cuda.is_available()
    settings = list(product(options.precisions, options.codecs, options.shapes, options.steps))
    ways = tuple(way for way in WAYS if way in options.ways and (accelerator or way != "accelerator"))
    keys = [(*setting, options.tokens, ways, seed) for setting in settings for seed in range(options.seeds)]
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        runs = {key: known.get(list(key), Found) for key in keys}
        futures = {key: pool.submit(play, *key) for key, run in runs.items() if run is None}
        for key, future in futures.items():
            runs[key] = future.result()
            known.add(list(key), runs[key])
    print(f"{'':50}{'tasks':>8}{'to the bit':>12}{'median':>10}{'99th':>10}{'most':>10}{'apart':>8}{'convicted':>11}")
    for setting in settings:
        precision, codec, shape, steps = setting
        found = [run.distances for key, run in runs.items() if run is not None and key[:4] == setting]
        of = {way: np.concatenate([distances[way] for distances in found]) for way in ways}
        for way, distances in of.items():
            apart, late = distances > TOLERANCE[precision], np.quantile(distances, 0.99)
            label = f"{precision}, {codec}, {shape}, {steps} steps, {way}"
            convicted: int | str = "-"
            if "perturbed" in of and way != "perturbed":
                near = of["perturbed"]
                convicted = int((apart & (near <= TOLERANCE[precision]) & (distances > CLEARLY * near)).sum())
            print(
                f"{label:50}{distances.size:>8}{np.mean(distances == 0.0):>12.1%}{np.median(distances):>10.1e}"
                f"{late:>10.1e}{distances.max():>10.1e}{int(apart.sum()):>8}{convicted:>11}"
            )


def play(precision: str, codec: str, shape: str, steps: int, tokens: int, ways: tuple[str, ...], seed: int) -> Found:
    """One run."""
    layers, width = map(int, shape.split("x"))
    content = {
        "run": {"name": "repeats", "seed": seed},
        "model": {"architecture": "gpt2", "config": {"hidden_size": width, "num_layers": layers, "num_heads": 2}},
        "data": {"kind": "text", "files": files("modules"), "context": 32},
        "controller": {"evaluations": 1, "evaluation_rows": 32, "checkpoint_seconds": 1e6},
        "training": {
            "tokens": tokens,
            "batch_size": 4,
            "local_steps": steps,
            "learning_rate": 0.003,
            "tasks": "stateless",
            "precision": precision,
            "compression": codec,
            "downlink_compression": "int8",
        },
        "workers": [{"name": name} for name in NODES],
    }
    distances: dict[str, list[float]] = {way: [] for way in ways}

    class Twice(_Twice):
        found, elsewhere = distances, "cuda" if "accelerator" in ways else ""

    plan = resolve(load(content), purpose=Purpose.SIMULATE, nodes=len(NODES))
    simulate(plan, Trial(len(NODES), real=True, seed=seed), executors=dict.fromkeys(NODES, Twice))
    return Found(distances)


class _Twice(WorkerExecutor):
    """An executor that does each task in all ways."""

    found: dict[str, list[float]]
    elsewhere: str

    def __init__(
        self, trainer: LocalTrainer, dataset: Dataset, settings: WorkerSettings, slowdown: float = 0.0
    ) -> None:
        super().__init__(trainer, dataset, settings, slowdown)
        self._versions = _Seen()
        self._other = _on(self.elsewhere, trainer, settings.inner) if self.elsewhere else None

    def update(self, news: News, fetched: Fetched) -> int:
        version = super().update(news, fetched)
        self._versions.see(version, self.published.parameters)
        return version

    def train(self, task: Train, on_step: Any) -> Future[Contribution | None]:
        moved = self.published.movement
        movement = None if moved is None else moved.clone()
        self._versions.see(self.published.version, self.published.parameters)
        made = super().train(task, on_step).result()
        if made is not None and made.transcript is not None:
            self._versions.movements = {made.transcript.start: movement}
            sent = self.payloads[task.id].decoded()
            for way in self.found:
                with self._in(way, task.id) as versions:
                    again = self.again(task, made.transcript, versions)
                apart = np.linalg.norm(again[0].decoded() - sent) / np.linalg.norm(sent) if again else np.inf
                self.found[way].append(float(apart))
        return finished(made)

    @contextmanager
    def _in(self, way: str, seed: int) -> Iterator[Versions]:
        """Return the versions from which the trainer repeats the task."""
        versions: Versions = self._versions
        trainer, threads = self.trainer, torch.get_num_threads()
        cut, self.cut = self.cut, Event()  # the task may have been cut short, by what it took in virtual time
        if way == "two threads":
            torch.set_num_threads(2)
        elif way == "a row at a time":
            self.trainer = trainer.anew()
            self.trainer.tokens_at_once = 1
        elif way == "rounded versions":
            versions = self._versions.rounded()
        elif way == "perturbed":
            versions = Perturbed(versions, PERTURBATION[trainer.precision], seed)
        elif way == "accelerator" and self._other:
            self.trainer = self._other
        try:
            yield versions
        finally:
            torch.set_num_threads(threads)
            self.trainer, self.cut = trainer, cut


class _Seen:
    """The exact versions from which a worker trained."""

    def __init__(self, rounding: float = 0.0) -> None:
        self.versions: dict[int, Tensor] = {}
        self.movements: dict[int, Tensor | None] = {}
        self._rounding = rounding

    def see(self, version: int, parameters: Tensor) -> None:
        if version not in self.versions:
            self.versions[version] = parameters.clone()
            self.versions = dict(sorted(self.versions.items())[-70:])

    def rounded(self) -> _Seen:
        """Return the parameters after a movement of a usual step's length is added and taken back."""
        other = _Seen(1e-2)
        other.versions, other.movements = self.versions, self.movements
        return other

    def at(self, version: int) -> Tensor:
        found = self.versions[version].clone()
        return found.add_(self._rounding).sub_(self._rounding) if self._rounding else found

    def movement(self, version: int) -> Tensor:
        found = self.movements[version]
        assert found is not None
        return found.clone()


def _on(device: str, trainer: LocalTrainer, inner: Inner) -> LocalTrainer:
    """Return a trainer of the same kind as `trainer`."""
    return LocalTrainer(
        copy.deepcopy(trainer.module),
        optimizer=inner.optimizer,
        options=inner.options,
        gradient_clip=inner.gradient_clip,
        proximal=inner.proximal,
        precision=inner.precision,
        device=device,
    )


if __name__ == "__main__":
    main()
