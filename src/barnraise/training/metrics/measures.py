"""The metrics of the catalog: each is a function from a model and held-out examples to figures by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from barnraise.core.errors import DataError
from barnraise.data import tokenizers
from barnraise.data.questions import CodedChoice, Question, Questions
from barnraise.data.shards import Dataset
from barnraise.models.chance import seeded
from barnraise.training.local import CPU, tensors
from barnraise.training.metrics.generation import BATCH_ROWS, Stopped, batches_of, greedy
from barnraise.training.problem import Problem

BATCH_FORMULAS = 64

SPARE = 8
"""Tokens that a generated answer may have more than the right one, which the tokenizer may write in fewer."""


@dataclass(frozen=True)
class HeldOutData:
    """The held-out data that metrics read: at most `rows` rows of `dataset`, and as many questions.

    `stopped` says whether the measurement is still wanted.
    """

    dataset: Dataset
    problem: Problem
    rows: int
    questions: Questions | None = None
    stopped: Callable[[], bool] = field(default=lambda: False)

    def asked(self) -> tuple[Questions, Sequence[Question]]:
        """Return the questions of the dataset, and as many of them as are to be read; DataError without any."""
        if self.questions is None or not self.questions.held_out:
            raise DataError(
                "the run's dataset was made without questions: name the metric in the run file before the run begins"
            )
        return self.questions, self.questions.held_out[: self.rows]


Figures = Mapping[str, float]


def exact_match(module: nn.Module, held: HeldOutData) -> Figures:
    """Return the share of questions whose greedy completion is the answer's text, white space around both aside."""
    questions, asked = held.asked()
    coder = tokenizers.of(held.dataset)
    most = [2 * len(question.answer) + SPARE for question in asked]
    prompts = [question.prompt for question in asked]
    written = greedy(
        module,
        prompts,
        context=held.dataset.meta.context,
        stops=questions.stops,
        most=most,
        stopped=held.stopped,
    )
    right = 0
    for question, completion in zip(asked, written, strict=True):
        said = completion[:-1] if completion and completion[-1] in questions.stops else completion
        right += coder.decode(said).strip() == coder.decode(question.answer).strip()
    return {"exact_match": right / len(asked)}


def choice_accuracy(module: nn.Module, held: HeldOutData) -> Figures:
    """Return the share of questions whose right choice has the highest log-likelihood a character, as acc_norm."""
    _, asked = held.asked()
    asked = [question for question in asked if question.choices]
    if not asked:
        raise DataError(
            "no held-out example has choices: give records with choices and label, or name their fields in data.fields"
        )
    scored = log_likelihoods(
        module, [choice for question in asked for choice in question.choices], stopped=held.stopped
    )
    right, place = 0, 0
    for question in asked:
        own = scored[place : place + len(question.choices)]
        place += len(question.choices)
        each = [score / max(1, choice.characters) for score, choice in zip(own, question.choices, strict=True)]
        right += int(np.argmax(each)) == question.right
    return {"choice_accuracy": right / len(asked)}


def log_likelihoods(
    module: nn.Module, choices: Sequence[CodedChoice], *, stopped: Callable[[], bool] = lambda: False
) -> list[float]:
    """Return the log-likelihood of each choice after its prompt, in nats.

    Rows of a batch are filled up behind their end, where a causal model's earlier predictions do not look.
    """
    found = [0.0] * len(choices)
    for places in batches_of({place: len(choice.ids) for place, choice in enumerate(choices)}):
        if stopped():
            raise Stopped
        longest = max(len(choices[place].ids) for place in places)
        ids = torch.zeros(len(places), longest, dtype=torch.int64)
        for row, place in enumerate(places):
            ids[row, : len(choices[place].ids)] = torch.tensor(choices[place].ids)
        with torch.inference_mode():
            logits: Tensor = module(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits.float()
        for row, place in enumerate(places):
            start, stop = choices[place].start, len(choices[place].ids)
            each = logits[row, start - 1 : stop - 1].log_softmax(-1)
            found[place] = float(each.gather(1, ids[row, start:stop, None]).sum())
    return found


def formulas(module: nn.Module, held: HeldOutData) -> Figures:
    """Return how well the model solves held-out formulas, by the checker of traces.

    First on the formulas that need search, where there are some, then on each held-out set.
    """
    from barnraise.data.sat.evaluation import evaluate

    meta = held.dataset.meta
    stops = () if meta.eos_id is None else (meta.eos_id,)

    def generate(prompts: list[list[int]], most: int) -> list[list[int]]:
        each = [most] * len(prompts)
        return greedy(
            module, prompts, context=meta.context, stops=stops, most=each, batch=BATCH_FORMULAS, stopped=held.stopped
        )

    scores = evaluate(held.dataset, generate, limit=held.rows)
    tallies = {"needs search": scores.searched} | {scored.name: scored.all for scored in scores.sets}
    return {
        f"{name}/{figure}": right / tally.formulas
        for name, tally in tallies.items()
        if tally.formulas
        for figure, right in (("verdicts", tally.verdicts), ("whole traces", tally.traces))
    }


def problem(module: nn.Module, held: HeldOutData) -> Figures:
    """Return the figures that the problem's own method `evaluate` finds on held-out rows."""
    rows, meta = held.dataset.held_out(held.rows), held.dataset.meta

    def batches() -> Iterator[dict[str, Tensor]]:
        for start in range(0, len(rows), BATCH_ROWS):
            if held.stopped():
                raise Stopped
            yield tensors(held.problem.batch(rows[start : start + BATCH_ROWS], meta, np.random.default_rng(start)), CPU)

    with seeded():
        return held.problem.evaluate(module, batches())


Metric = Callable[[Any, HeldOutData], Figures]
