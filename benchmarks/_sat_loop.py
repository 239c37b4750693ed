"""The loop of a lone worker on SAT rows: barnraise's dataset, steps and scores, without a controller.

A step of so small a model on a card takes as long as its kernels take to start, one after the other. `Graphed` starts
those of the forward pass, and of the backward pass, all at once.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from barnraise.assembly import parts
from barnraise.assembly.base_model import named_exchange
from barnraise.assembly.engine_settings import worker_settings
from barnraise.assembly.preparing import make_dataset
from barnraise.core.types import Batches
from barnraise.data.batches import Rows, batches
from barnraise.data.sat.dataset import held_out_sets
from barnraise.data.sat.evaluation import LONGEST, evaluate
from barnraise.data.shards import Dataset
from barnraise.models.flat import FlatParameters
from barnraise.models.packing import rows_packed
from barnraise.plan.dataset import sat_options
from barnraise.plan.resolve import Plan
from barnraise.training.metrics.generation import greedy
from barnraise.training.problems import problem_of
from barnraise.worker.building import make_trainer
from barnraise.worker.options import Means

ROWS = 1_000
"""Rows of each shard whose examples are counted, to find how many a step takes."""


class Score(NamedTuple):
    """Counts over the formulas of a held-out set that need search: their number, right verdicts, whole traces."""

    formulas: int
    verdicts: int
    traces: int


class Point(NamedTuple):
    """A point of a trial: tokens and seconds of training until then, mean loss since the last, scores by set."""

    tokens: int
    seconds: float
    loss: float
    scores: dict[str, Score]


@dataclass(frozen=True)
class Tried:
    """One trial so far: the parameters, the formulas of a step, the tokens of its schedule, its points.

    `end` is "done", or "cut" where the limit came before the last token, or empty while the trial trains.
    """

    name: str
    machine: str
    parameters: int
    formulas: float
    budget: int
    curve: list[Point]
    end: str = ""


def dataset_folder(plan: Plan, folder: Path) -> Path:
    """Return the folder in which the dataset of this data section is kept: equal sections share it."""
    options = json.dumps(sat_options(plan.run_file).as_dict(), sort_keys=True)
    return folder / hashlib.sha256(options.encode()).hexdigest()[:16]


def prepare(plan: Plan, folder: Path, say: Callable[[str], None] = lambda text: None) -> Path:
    """Make the dataset of a trial, unless it is there, and return its folder."""
    found = dataset_folder(plan, folder)
    if not found.exists():
        folder.mkdir(parents=True, exist_ok=True)
        make_dataset(plan, found, say)
    return found


class Graphed:
    """The model as two CUDA graphs, forward and backward, for batches of one shape; others take the model itself.

    Shorter batches are filled up behind their end, where no earlier position looks.
    """

    @staticmethod
    def takes(module: nn.Module) -> bool:
        """Return whether the model can be captured: eager attention, as GPT-Neo's, copies numbers to the card."""
        return module.config._attn_implementation != "eager"

    def __init__(self, module: nn.Module, rows: int, length: int) -> None:
        torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch(False)  # the graphs have streams of their own
        self.module, self.config, self.shape = module, module.config, (rows, length)
        ids = torch.zeros(rows, length, dtype=torch.int64, device="cuda")
        positions = torch.arange(length, device="cuda").repeat(rows, 1)
        self._logits = torch.cuda.make_graphed_callables(_Logits(module), (ids, positions))

    def __call__(self, input_ids: Tensor, position_ids: Tensor, use_cache: bool) -> Any:
        rows, length = input_ids.shape
        if rows != self.shape[0]:
            return self.module(input_ids=input_ids, position_ids=position_ids, use_cache=use_cache)
        behind = (0, self.shape[1] - length)
        logits = self._logits(nn.functional.pad(input_ids, behind), nn.functional.pad(position_ids, behind))
        return SimpleNamespace(logits=logits[:, :length])


class _Logits(nn.Module):
    """The logits of packed rows as a function of tensors alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, position_ids: Tensor) -> Tensor:
        with rows_packed(True):
            logits: Tensor = self.model(input_ids=input_ids, position_ids=position_ids, use_cache=False).logits
        return logits


class Loop:
    """A model that trains on the rows of a dataset, in their order, about `formulas` at a step."""

    def __init__(self, plan: Plan, folder: Path, device: str, formulas: int, *, graphs: bool = False) -> None:
        self.dataset = Dataset.open(folder)
        self.meta = self.dataset.meta
        config = parts.model_config(plan, self.dataset)
        exchange = plan.exchange(config, named_exchange(plan, config, folder))
        problem = problem_of(config)

        def model() -> nn.Module:
            return parts.initial_model(plan, config, exchange, folder)

        self.trainer = make_trainer(model(), worker_settings(plan), Means(device), problem=problem)
        self._shown = FlatParameters(model().to(device).eval())  # writes traces: it is neither compiled nor graphed
        self.parameters = self.trainer.flat.layout.size
        self.step_rows = max(1, round(formulas / self._examples_a_row()))
        self.formulas = self.step_rows * self._examples_a_row()
        self.tokens = 0
        self._plan, self._device = plan, device
        self._chunks = enumerate(self._rows(self.step_rows * plan.run_file.training.local_steps))
        if graphs and Graphed.takes(self.trainer.module):
            self.trainer.module = Graphed(self.trainer.module, self.step_rows, self.meta.context)

    def train(self, budget: int) -> float:
        """Take the steps of one task, at the rate of `budget` tokens' schedule; return their mean loss."""
        number, rows = next(self._chunks)
        self.tokens += len(rows) * self.meta.context
        rate = self._plan.run_file.training.learning_rate * self._plan.schedule.rate(self.tokens, budget)
        order = Batches((), self.step_rows, number)
        return self.trainer.run(batches([rows], order, self.meta, self.trainer.problem.batch), rate)[1]

    def scores(self, limit: int) -> dict[str, Score]:
        """Let the model write traces of `limit` formulas of each held-out set, and count by number of variables."""
        answers = self._answers(limit)

        def generate(prompts: list[list[int]], most: int) -> list[list[int]]:
            return [answers[tuple(prompt)][:most] for prompt in prompts]

        _, *sets = evaluate(self.dataset, generate, limit=limit).sets  # the first is as the formulas of training
        found = {one.name: one.searched for one in sets}
        return {name: Score(one.formulas, one.verdicts, one.traces) for name, one in found.items() if one.formulas}

    def _answers(self, limit: int) -> dict[tuple[int, ...], list[int]]:
        """Return the model's completions of the prompts of all sets, which a card writes at the same time."""
        rows = [row for held in held_out_sets(self.dataset, limit) for row in held.rows]
        starts = [row.index(self.meta.targets.after) + 1 for row in rows]
        prompts = [row[:start] for row, start in zip(rows, starts, strict=True)]
        most = LONGEST * max(len(row) - start for row, start in zip(rows, starts, strict=True))
        together = {"batch": 128} if self._device == "cpu" else {"batch": len(rows), "tokens_at_once": 1 << 20}
        self._shown.vector.copy_(self.trainer.flat.vector)
        written = greedy(
            self._shown.module,
            prompts,
            context=self.meta.context,
            stops=(self.meta.eos_id,),
            most=[most] * len(prompts),
            **together,
        )
        return dict(zip(map(tuple, prompts), written, strict=True))

    def _examples_a_row(self) -> float:
        shards = enumerate(self.meta.shards)
        rows = [self.dataset.rows(shard, 0, min(ROWS, info.rows))["tokens"] for shard, info in shards]
        return float(sum((some == self.meta.eos_id).sum() for some in rows) / sum(map(len, rows)))

    def _rows(self, number: int) -> Iterator[Rows]:
        """Yield `number` rows at a time in their order, all of them again and again; a shard's last are fewer."""
        while True:
            for shard, info in enumerate(self.meta.shards):
                for start in range(0, info.rows, number):
                    yield self.dataset.rows(shard, start, min(start + number, info.rows))


def play(
    loop: Loop, tried: Tried, points: int, limit: int, seconds_left: Callable[[], float], keep: Callable[[Tried], None]
) -> Tried:
    """Train to the end of the budget, or as long as there is time for one more evaluation.

    The trial is evaluated on `limit` formulas a set at as many `points`, evenly spread over its tokens, and what it has
    is kept each time.
    """
    curve, seconds, longest = list[Point](), 0.0, 0.0
    total, number, marked = 0.0, 0, time.monotonic()
    while not tried.end:
        total, number = total + loop.train(tried.budget), number + 1
        done = loop.tokens >= tried.budget
        cut = not done and seconds_left() < 1.3 * longest + 2.0
        if not (done or cut or loop.tokens * points >= tried.budget * (len(curve) + 1)):
            continue
        paused = time.monotonic()
        seconds += paused - marked
        curve = [*curve, Point(loop.tokens, seconds, total / number, loop.scores(limit))]
        tried = replace(tried, curve=curve, end="done" if done else "cut" if cut else "")
        keep(tried)
        total, number, marked = 0.0, 0, time.monotonic()
        longest = max(longest, marked - paused)
    return tried
