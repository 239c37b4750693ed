"""Rivals of barnraise's exchange in virtual time, with real tensors and barnraise's own codecs and inner steps.

A rival's workers take equally long steps, so its losses by tokens do not depend on the link: time follows from R
afterwards. R = FLOP/s / (bandwidth in bytes/s * tokens a step): a step of B tokens takes 6 N B / FLOP/s seconds, and N
values of b bytes take N b / bandwidth, which are b R / 6 steps. N cancels.

The charges favour the rivals: no latency, no headers of messages, no time to encode, and exchanges without
a server: a ring of n workers moves 2 (n - 1) / n payloads each way, a gather of sparse payloads n - 1 of them down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import torch
from _sides import Task, skipped_by
from torch import Tensor

from barnraise.assembly.simulated_work import real
from barnraise.assembly.trial import Trial
from barnraise.compression import catalog as codecs
from barnraise.compression.base import Codec
from barnraise.compression.feedback import ErrorFeedback
from barnraise.config import load
from barnraise.data.batches import Batch, batch_of
from barnraise.plan import Purpose, resolve
from barnraise.training.local import LocalTrainer
from barnraise.training.schedule import Schedule

OUTER_RATE, MOMENTUM = 0.7, 0.9
"""Rate and momentum of the Nesterov step outside (Douillard et al. 2023)."""

DECAY = 0.95
"""Share of SparseLoCo's residual that survives a round (Sarfi et al. 2025)."""

KEEP = 0.5
"""Share of its own parameters that a worker of Streaming DiLoCo keeps (Douillard et al. 2025)."""

ALIGNED, SHRINKING, TURNING, TRUST = 0.3, 1.0, 0.5, 1.0
"""HeLoCo's thresholds and strengths (c_ok, k_s, k_d, kappa); ours, as the paper tunes them for each run."""

POINTS = 10
"""Evaluations of a run."""


@dataclass(frozen=True)
class Recipe:
    """One way to train: `kind` is lone, ddp, diloco, streaming, sparse or heloco.

    `workers` share `excess` lone budgets. `wait` is the number of steps after which Streaming DiLoCo takes a fragment
    of `fragments` in. `average` is the share of the run over which a lone worker, or DDP, averages its versions.
    """

    kind: str
    rate: float
    steps: int = 1
    excess: float = 1.0
    workers: int = 4
    batch: int = 1
    codec: str = "none"
    options: dict[str, Any] = field(default_factory=dict)
    inner: str = "adamw"
    wait: int = 0
    fragments: int = 1
    average: float = 0.0

    def bytes_a_value(self, size: int) -> float:
        """Return the measured bytes of a payload over the values of the model."""
        return self._codec().max_bytes(size) / size

    def _codec(self) -> Codec:
        return make_codec(self.codec, self.options)

    def stretch(self, ratio: float, size: int) -> float:
        """Return the time of a run over that of its steps alone; inf where the rounds do not fit.

        `ratio` is R with the tokens of a step of one row.
        """
        sent = self.bytes_a_value(size) * ratio / 6 / self.batch  # steps that one payload takes one way
        ring = 2 * (self.workers - 1) / self.workers * sent
        match self.kind:
            case "streaming":
                hidden = ring <= self.steps and ring / self.fragments <= self.wait
                return 1.0 if hidden else math.inf
            case "sparse":
                return 1.0 + (self.workers - 1) * sent / self.steps
            case "heloco":
                return 1.0 + 2 * sent / self.steps
        return self.with_ring(ring)

    def with_ring(self, ring: float) -> float:
        """Return the time of a run over that of its steps alone, where an exchange of all takes `ring` steps.

        DDP hides its exchange behind the step as far as it can, and a lone worker has none.
        """
        if self.kind == "ddp":
            return max(1.0, ring)
        return 1.0 if self.kind == "lone" else 1.0 + ring / self.steps


class Measured(NamedTuple):
    """A point of a run: a worker's steps until then, the tokens of all, and the held-out loss."""

    steps: int
    tokens: int
    loss: float


def make_codec(name: str, options: dict[str, Any]) -> Codec:
    return codecs.CATALOG.create(name, **options)


class Bench:
    """The model, rows and held-out rows of one seed and order, as the engine makes them, on the task's device."""

    def __init__(self, task: Task, seed: int, order: int = 0, inner: str = "adamw") -> None:
        content = task.content("rivals", seed)
        content["evaluation"] = {"rows": task.held_out}
        content["controller"] = {"threads": task.threads}
        content["training"] |= {"tokens": 1_000_000, "batch_size": 1, "local_steps": 1, "inner_optimizer": inner}
        plan = resolve(load(content), purpose=Purpose.SIMULATE, nodes=1)
        self.seed, self.skipped, self.context = seed, skipped_by(order), task.context
        trial = Trial(1, real=True, skipped=self.skipped, device=task.device)
        self._work: AbstractContextManager[Any] = real(plan, trial, {})

    def __enter__(self) -> Bench:
        _, controller, node, _ = self._work.__enter__()
        self.evaluator = controller.tensors.evaluator
        self.dataset = controller.dataset
        self.trainer: LocalTrainer = node("bench").trainer
        self.start = controller.server.parameters.to(self.trainer.device, copy=True)
        shards = range(len(self.dataset.meta.shards))
        self.rows = np.concatenate([self.dataset.rows(one, 0, self.dataset.meta.shards[one].rows) for one in shards])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._work.__exit__(kind, error, trace)

    def loss(self, vector: Tensor) -> float:
        return float(self.evaluator.loss(self.evaluator.model_of(vector)))

    def order(self, rank: int, workers: int) -> np.ndarray[Any, Any]:
        """Return the rows of one worker, in its order."""
        found = np.random.default_rng([self.seed, round(1000 * self.skipped)]).permutation(len(self.rows))
        return found[rank::workers]


class Worker:
    """One worker of a rival: its own optimizer and parameters, on the module that all share."""

    def __init__(self, bench: Bench, recipe: Recipe, rank: int, rate: Callable[[float], float], num_steps: int) -> None:
        self.trainer = bench.trainer.anew()
        self.vector = bench.start.clone()
        self.feedback = ErrorFeedback(recipe._codec(), DECAY if recipe.kind == "sparse" else 1.0)
        self._rows, self._form, self._batch = bench.rows, bench.dataset.meta, recipe.batch
        self._order = bench.order(rank, recipe.workers)
        self._rate, self._num_steps, self.done = rate, num_steps, 0

    def train(self, steps: int) -> None:
        """Take `steps` steps from `vector`, which then holds the result."""
        self.trainer.load(self.vector)
        for batch in self.batches(steps):
            self.trainer.step(batch, self._rate(self.done / self._num_steps))
        self.vector.copy_(self.trainer.flat.vector)

    def batches(self, steps: int) -> Iterator[Batch]:
        """Yield the batches of its next steps."""
        for _ in range(steps):
            places = (self.done * self._batch + np.arange(self._batch)) % len(self._order)
            self.done += 1
            yield batch_of(self._rows[self._order[places]], self._form)

    def sent(self, update: Tensor, where: slice = slice(None)) -> Tensor:
        """Return `update` as the others see it; the residual keeps what the codec leaves out."""
        if where == slice(None):
            encoded = self.feedback.compress(update.to("cpu", copy=True))
        else:
            encoded = self.feedback.codec.encode(update[where].contiguous().cpu())
        return self.feedback.codec.decode(encoded).to(update.device)


def play(bench: Bench, recipe: Recipe, lone_tokens: float) -> list[Measured]:
    """Train by `recipe` on `excess` times the lone worker's tokens, and return the points of its curve."""
    step_tokens = recipe.batch * bench.context
    num_steps = max(1, round(lone_tokens * recipe.excess / recipe.workers / step_tokens))
    schedule = Schedule("cosine", 50_000, 0.1)
    peak = recipe.rate

    def rate(progress: float) -> float:
        return peak * schedule.rate(round(1e6 * progress), 1_000_000)

    taken = together(recipe) if recipe.kind == "ddp" else recipe
    workers = [Worker(bench, taken, rank, rate, num_steps) for rank in range(taken.workers)]
    for worker in workers:
        worker.trainer.tokens_at_once = step_tokens  # as a worker of DDP takes them
    ways = {"lone": lone, "ddp": lone, "streaming": streaming, "heloco": heloco}
    found, due = [Measured(0, 0, bench.loss(bench.start))], num_steps / POINTS
    for steps, version in ways.get(recipe.kind, rounds)(bench, recipe, workers, num_steps):
        if steps >= due - 1e-9 or steps >= num_steps:
            found.append(Measured(steps, steps * step_tokens * recipe.workers, bench.loss(version())))
            due = (math.floor(steps / num_steps * POINTS + 1e-9) + 1) * num_steps / POINTS
    return found


def together(recipe: Recipe) -> Recipe:
    """Return the recipe of one worker that takes the rows of all: the steps of DDP, whose gradients are averaged."""
    return replace(recipe, workers=1, batch=recipe.workers * recipe.batch)


Versions = Iterator[tuple[int, Callable[[], Tensor]]]
"""Steps of each worker, and what the run has then."""


def lone(bench: Bench, recipe: Recipe, workers: Sequence[Worker], num_steps: int) -> Versions:
    """One worker; the version is an average that looks back over `average` of the run."""
    (worker,) = workers
    average, back = bench.start.clone(), max(1.0, recipe.average * num_steps)
    for step in range(1, num_steps + 1):
        worker.train(1)
        average.lerp_(worker.vector, max(1.0 / step, 1.0 / back))
        yield step, lambda: average


def rounds(bench: Bench, recipe: Recipe, workers: Sequence[Worker], num_steps: int) -> Versions:
    """Rounds that wait: DiLoCo with Nesterov outside, SparseLoCo with the plain mean."""
    version, outer = bench.start.clone(), Nesterov(bench.start, recipe.kind != "sparse")
    for done in [*range(recipe.steps, num_steps, recipe.steps), num_steps]:
        mean = torch.zeros_like(version)
        for worker in workers:
            worker.vector.copy_(version)
            worker.train(done - worker.done)
            mean += worker.sent(version - worker.vector) / len(workers)
        outer.step(version, mean, slice(None))
        yield done, lambda: version


def streaming(bench: Bench, recipe: Recipe, workers: Sequence[Worker], num_steps: int) -> Versions:
    """Fragments take turns; each worker takes one in `wait` steps after all have sent it, and keeps half of its own."""
    size, count = bench.start.numel(), recipe.fragments
    version, outer = bench.start.clone(), Nesterov(bench.start, True)
    bounds = [round(size * part / count) for part in range(count + 1)]
    parts = [slice(*pair) for pair in pairwise(bounds)]
    turns = {recipe.steps * part // count: part for part in range(count)}
    coming: dict[int, tuple[slice, Tensor]] = {}
    for step in range(1, num_steps + 1):
        for worker in workers:
            worker.train(1)
        part = turns.get(step % recipe.steps)
        if part is not None or step == num_steps:
            where = parts[part or 0]
            updates = [worker.sent(version - worker.vector, where) for worker in workers]
            coming[step + recipe.wait] = where, torch.stack(updates).mean(0)
        if step in coming:
            where, mean = coming.pop(step)
            outer.step(version, mean, where)
            for worker in workers:
                worker.vector[where] = worker.vector[where].lerp(version[where], 1.0 - KEEP)
        yield step, lambda: torch.stack([worker.vector for worker in workers]).mean(0)


def heloco(bench: Bench, recipe: Recipe, workers: Sequence[Worker], num_steps: int) -> Versions:
    """A version for each update, whose direction is corrected by the momentum outside where it is stale."""
    version, outer = bench.start.clone(), Nesterov(bench.start, True, OUTER_RATE / len(workers))
    starts = [version.clone() for _ in workers]
    blocks = [*torch.split(torch.arange(version.numel()), 4096)]
    spans = [slice(int(block[0]), int(block[-1]) + 1) for block in blocks]
    for done in [*range(recipe.steps, num_steps, recipe.steps), num_steps]:
        for worker, start in zip(workers, starts, strict=True):
            worker.vector.copy_(start)
            worker.train(done - worker.done)
            update = worker.sent(start - worker.vector)
            for span in spans:
                update[span] = corrected(update[span], outer.momentum[span])
            outer.step(version, update, slice(None))
            start.copy_(version - outer.rate * MOMENTUM * outer.momentum)
        yield done, lambda: version


class Nesterov:
    """The step outside: Nesterov's at `rate`, or the mean itself."""

    def __init__(self, start: Tensor, momentum: bool, rate: float = OUTER_RATE) -> None:
        self.momentum, self.rate, self._plain = torch.zeros_like(start), rate, not momentum

    def step(self, version: Tensor, mean: Tensor, where: slice) -> None:
        if self._plain:
            version[where] -= mean
            return
        self.momentum[where] = MOMENTUM * self.momentum[where] + mean
        version[where] -= self.rate * (mean + MOMENTUM * self.momentum[where])


def corrected(update: Tensor, momentum: Tensor) -> Tensor:
    """Return a block of a stale update by HeLoCo's rule (arXiv 2606.00271): kept, shortened or turned."""
    length, reference = float(update.norm()), float(momentum.norm())
    if not length or not reference:
        return update
    along = momentum / reference
    cosine = float(update @ along) / length
    if cosine >= ALIGNED:
        return update
    trust = length / (length + TRUST * reference)
    if cosine < 0:
        return update - min(1.0, -SHRINKING * cosine * trust) * cosine * length * along
    turn = min(1.0, TURNING * (ALIGNED - cosine) * trust)
    turned = (1.0 - turn) * update / length + turn * along
    return length * turned / max(float(turned.norm()), 1e-12)
