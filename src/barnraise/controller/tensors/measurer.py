"""Named metrics and samples of published parameters, by a model of its own beside the controller's other work.

Held-out losses alone wait for the metric `problem`, while it has time: both may draw random numbers, which threads
share.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from barnraise.controller.tensors.evaluator import Evaluator
from barnraise.controller.tensors.time_limit import TookTooLongError, within
from barnraise.core.errors import BarnraiseError
from barnraise.core.text import printable
from barnraise.data.questions import Questions, questions_in
from barnraise.ledger.measured import TextSample
from barnraise.training.metrics import callables
from barnraise.training.metrics.catalog import CATALOG, PERPLEXITY, Wanted, is_callable, is_own_code
from barnraise.training.metrics.generation import Stopped, greedy
from barnraise.training.metrics.measures import HeldOutData, Metric
from barnraise.training.metrics.texts import answer_of, coder_of, openings, writes_traces

RESERVED = ("loss", PERPLEXITY)
"""Figures of every version, whose names a function's figures may not have."""

MOST_FIGURES = 64
LONGEST_FIGURE = 64
LONGEST_REASON = 300
LONGEST_PROMPT, LONGEST_TEXT = 500, 2000
"""Characters of a prompt, of which the end is kept, and of a generated text, of which the beginning is."""


@dataclass
class Findings:
    """The values of a version by metric, its samples, and why metrics gave no figure."""

    values: dict[str, float] = field(default_factory=dict)
    samples: tuple[TextSample, ...] = ()
    failures: dict[str, str] = field(default_factory=dict)


class Measurer:
    """Measures versions as `evaluator` does, by further metrics. One thread at a time.

    A metric that fails, whose code raises or whose figure is not finite, is told once. A user's code that takes longer
    than `wanted.metric_seconds` is not called again.
    """

    def __init__(self, evaluator: Evaluator, wanted: Wanted) -> None:
        self.dataset, self.wanted = evaluator.dataset, wanted
        self._evaluator = evaluator.another()
        self._ending = threading.Event()
        self._held: HeldOutData | None = None
        self._told = set[str]()
        self._endless = set[str]()

    def build(self) -> None:
        """Build the model, if that is not done yet."""
        self._evaluator.build()

    def enter(self, parameters: Tensor) -> Any:
        """Return the model with these parameters, until the next call."""
        return self._evaluator.model_of(parameters)

    def stop(self) -> None:
        """End a measurement under way, and all later ones, soon."""
        self._ending.set()

    def measure(self, module: Any) -> Findings:
        """Return the findings about a model; Stopped after a call of `stop`."""
        found = Findings()
        functions = [name for name in self.wanted.metrics if is_callable(name)]
        for name in self.wanted.metrics:
            if name not in functions:
                metric = CATALOG.load(name)
                self._guarded(found, name, module, partial(_apply, metric, found, name, module))
        if self.wanted.samples:
            self._guarded(found, "samples", module, partial(self._sample, found, module))
        for name in functions:
            self._guarded(found, name, module, partial(self._call, found, name, module))
        return found

    def _guarded(self, found: Findings, name: str, module: Any, work: Callable[[HeldOutData], None]) -> None:
        """Do the work; where it raises, keep why, the first time."""
        if self._ending.is_set():
            raise Stopped
        if name in self._endless:
            return

        def measured() -> None:
            module.eval()
            with torch.no_grad():
                work(self._data())

        try:
            if is_own_code(name):
                within(self.wanted.metric_seconds, measured, self._ending.is_set)
            else:
                measured()
        except Stopped:
            raise
        except TookTooLongError:
            self._endless.add(name)
            found.failures[name] = (
                f"it took more than {self.wanted.metric_seconds:g} s and is not called again until the run is resumed; "
                "make it quicker, or raise evaluation.metric_seconds"
            )
        except (Exception, SystemExit) as error:  # a user's code may raise any exception
            if name not in self._told:
                self._told.add(name)
                why = str(error) if isinstance(error, BarnraiseError) else f"{type(error).__name__}: {error}"
                found.failures[name] = printable(why, LONGEST_REASON)

    def _data(self) -> HeldOutData:
        if self._held is None:
            own = self._evaluator
            held = HeldOutData(self.dataset, own.problem, own.rows, stopped=self._ending.is_set)
            self._held = replace(held, questions=questions_in(self.dataset))
        return self._held

    def _call(self, found: Findings, name: str, module: Any, held: HeldOutData) -> None:
        function = callables.load(name, self.dataset.folder.parent)
        _take(found, name, function(module, self.dataset.held_out(held.rows), coder_of(self.dataset)))

    def _sample(self, found: Findings, module: Any, held: HeldOutData) -> None:
        coder = coder_of(self.dataset)
        if coder is None:
            raise ValueError("rows that a problem makes have no text")
        prompts, stops = self._prompts(held)
        context = self.dataset.meta.context
        most = [context if writes_traces(self.dataset) else self.wanted.sample_tokens] * len(prompts)
        written = greedy(module, prompts, context=context, stops=stops, most=most, stopped=held.stopped)
        found.samples = tuple(
            TextSample(_end_of(coder.shown(prompt)), answer_of(self.dataset, coder, prompt, text)[:LONGEST_TEXT])
            for prompt, text in zip(prompts, written, strict=True)
        )

    def _prompts(self, held: HeldOutData) -> tuple[Sequence[Sequence[int]], Sequence[int]]:
        """Return the prompts of samples as token ids, and the tokens that end a text."""
        questions, end = held.questions or Questions(()), self.dataset.meta.eos_id
        if questions.asked:
            return questions.asked, questions.stops
        if questions.held_out:
            return [question.prompt for question in questions.held_out[: self.wanted.samples]], questions.stops
        return openings(self.dataset, self.wanted.samples), () if end is None else (end,)


def _apply(metric: Metric, found: Findings, name: str, module: Any, held: HeldOutData) -> None:
    _take(found, name, metric(module, held))


def _take(found: Findings, name: str, figures: float | Mapping[str, float]) -> None:
    """Keep the figures of a metric; ValueError where there are too many, or one is not finite."""
    short = name.rpartition(":")[2]
    named = dict(figures) if isinstance(figures, Mapping) else {short: figures}
    if len(named) > MOST_FIGURES:
        raise ValueError(f"{len(named)} figures, but a metric may have {MOST_FIGURES}")
    bad = []
    for key, value in named.items():
        key = printable(str(key), LONGEST_FIGURE)
        number = float(value)
        if not math.isfinite(number):
            bad.append(f"{key} is {number}")
        elif key in found.values or (is_callable(name) and key in RESERVED):
            bad.append(f"{key} is also a figure of another metric")
        else:
            found.values[key] = number
    if bad:
        raise ValueError(f"{', '.join(bad)}; figures must be finite and have names of their own")


def _end_of(text: str) -> str:
    return text if len(text) <= LONGEST_PROMPT else "..." + text[-LONGEST_PROMPT + 3 :]
