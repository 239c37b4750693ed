"""Checks of what a run trains: its problem, with its model and its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from barnraise.config.data_sections import InstructData, RowsData
from barnraise.config.problems import Problem
from barnraise.config.schema import RunFile
from barnraise.core.errors import InputError, UnknownNameError
from barnraise.models.problems import CATALOG, CAUSAL, FILES, MASKED, PROBLEM, SEQ2SEQ


def builds_own(run_file: RunFile) -> bool:
    """Return whether the run's problem is of a package or a file, and builds its own model."""
    return run_file.model.problem not in (None, CAUSAL, MASKED, SEQ2SEQ)


def own_problem(run_file: RunFile) -> str:
    """Return the name of the run's problem where that builds its own model; UnknownNameError when there is none."""
    name = run_file.model.problem
    return CATALOG.entry(name).name if name is not None and builds_own(run_file) else ""


def problem_problems(run_file: RunFile) -> Iterator[Problem]:
    """Yield what keeps a run from training its problem: an unknown one, or rows of another kind."""
    try:
        own = own_problem(run_file)
        columns = CATALOG.load(own).columns if own else ()
    except UnknownNameError as error:
        text = f"{error}; install its package, or name its file: {FILES}=NAME=FILE.py:CLASS"
        yield Problem(("model", "problem"), text)
        return
    except InputError as error:
        yield Problem(("model", "problem"), str(error))
        return
    made = isinstance(run_file.data, RowsData)
    if made and not columns:
        which = f"the problem '{own}' has no columns" if own else "no problem of a package or file is named"
        yield Problem(("data", "kind"), f"is rows, which a problem makes, but {which}; name one as model.problem")
    elif columns and not made:
        yield Problem(
            ("data", "kind"), f"is {run_file.data.kind}, but the problem '{own}' makes its own rows; set kind to rows"
        )


def pair_problems(run_file: RunFile, model: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield why a model that maps texts to texts cannot be trained on the run's data."""
    if model.get(PROBLEM, {}).get("name") != SEQ2SEQ:
        return
    if not isinstance(run_file.data, InstructData):
        text = (
            f"of a {model['model_type']} is {SEQ2SEQ}, which needs pairs of a source and a target, but data of the "
            f"kind {run_file.data.kind} has none; set data.kind: instruct for prompts with completions"
        )
        yield Problem(("model", "problem"), text)
    elif run_file.data.train_on == "all":
        text = f"is all, but the problem {SEQ2SEQ} learns the targets alone; leave it out"
        yield Problem(("data", "train_on"), text)
