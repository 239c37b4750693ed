"""The metrics and samples of a run file: what is measured, and why it cannot be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from barnraise.config.data_sections import ChatData, FileData, InstructData, RowsData, SatData
from barnraise.config.problems import Problem
from barnraise.config.schema import RunFile
from barnraise.core.errors import InputError
from barnraise.models.problems import CAUSAL, entry_of
from barnraise.training.metrics import callables
from barnraise.training.metrics.catalog import (
    ANSWERS,
    CHOICES,
    FORMULAS,
    OWN,
    Wanted,
    is_callable,
    measured,
    traits_of,
)

EXAMINED = 100
"""Examples that are looked at for choices before a run."""

_LACKING: Mapping[str, str] = {
    ANSWERS: "needs prompts with answers: data.kind chat or instruct",
    CHOICES: "needs records with choices and label: data.kind chat or instruct, and data.fields where they have other "
    "names",
    FORMULAS: "needs held-out formulas: data.kind sat",
    OWN: "needs a problem of your own, which has a method `evaluate`",
}


def wanted_of(run_file: RunFile) -> Wanted:
    """Return what the controller measures besides the loss."""
    section = run_file.evaluation
    samples = len(section.prompts) or section.samples
    return Wanted(measured(section.metrics), samples, section.sample_tokens, section.metric_seconds)


def num_questions(run_file: RunFile) -> int:
    """Return how many held-out examples the dataset keeps as questions for metrics and samples."""
    section = run_file.evaluation
    if not isinstance(run_file.data, ChatData | InstructData):
        return 0
    asks = any(traits_of(name).needs in (ANSWERS, CHOICES) for name in section.metrics)
    return section.rows if asks else 0 if section.prompts else section.samples


def metric_problems(run_file: RunFile) -> Iterator[Problem]:
    """Yield problems of metrics: unknown names, functions that cannot be imported, data that lacks what they need."""
    if (number := run_file.evaluation.sat_samples) > 1 and not isinstance(run_file.data, SatData):
        text = f"is {number}, but data of kind {run_file.data.kind} has no formulas; leave it out"
        yield Problem(("evaluation", "sat_samples"), text)
    for place, name in enumerate(run_file.evaluation.metrics):
        path = ("evaluation", "metrics", place)
        try:
            needs = traits_of(name).needs
            if is_callable(name):
                callables.load(name)
        except InputError as error:
            yield Problem(path, str(error))
            continue
        if needs and needs not in _given(run_file):
            yield Problem(path, f"is {name}, which {_LACKING[needs]}; this run has data of kind {run_file.data.kind}")


def measured_problems(run_file: RunFile, model: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield problems of metrics and samples with a model of this config, or with the first examples."""
    section = run_file.evaluation
    if (section.samples or section.prompts) and (problem := entry_of(model).name) != CAUSAL:
        key = "prompts" if section.prompts else "samples"
        text = f"is given, but only a {CAUSAL} writes text, and the problem of this model is {problem}; leave it out"
        yield Problem(("evaluation", key), text)
    for place, name in enumerate(section.metrics):
        if traits_of(name).needs in (ANSWERS, CHOICES) and (problem := entry_of(model).name) != CAUSAL:
            text = f"is {name}, but only a {CAUSAL} answers, and the problem of this model is {problem}; leave it out"
            yield Problem(("evaluation", "metrics", place), text)
    if section.prompts and not isinstance(run_file.data, FileData):
        text = f"is given, but data of kind {run_file.data.kind} is no text; give samples instead"
        yield Problem(("evaluation", "prompts"), text)
    chosen = [place for place, name in enumerate(section.metrics) if traits_of(name).needs == CHOICES]
    if chosen and isinstance(run_file.data, FileData) and not _has_choices(run_file.data):
        yield Problem(
            ("evaluation", "metrics", chosen[0]),
            f"is {section.metrics[chosen[0]]}, but the first {EXAMINED} records have no choices with a label; "
            "map them: `fields: {choices: NAME, label: NAME}`",
        )


def _has_choices(data: FileData) -> bool:
    from barnraise.data.gathering import peek

    try:
        return any(example.choices is not None for example in islice(peek(data), EXAMINED))
    except InputError:
        return True  # `example_problems` tells what is wrong


def _given(run_file: RunFile) -> tuple[str, ...]:
    """Return the needs that the run's data meets."""
    match run_file.data:
        case ChatData() | InstructData():
            return ANSWERS, CHOICES
        case SatData():
            return (FORMULAS,)
        case RowsData():
            return (OWN,)
        case _:
            return ()
