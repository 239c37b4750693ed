"""Satisfiability data before a run: what the family of formulas can give, and the number of rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from barnraise.config.data_sections import SatData
from barnraise.config.problems import Path, Problem
from barnraise.config.schema import RunFile
from barnraise.core.errors import InputError
from barnraise.core.units import count_text
from barnraise.plan.dataset import sat_options

if TYPE_CHECKING:
    from barnraise.data.sat.collection import Collection
    from barnraise.data.sat.options import SatOptions
    from barnraise.data.sat.sample import Sample


ONCE = 1.05
"""Times that the rows are trained on, up to which a formula counts as seen once."""


def sat_problems(run_file: RunFile) -> tuple[list[Problem], list[Problem]]:
    """Return (errors, warnings) about the formulas of a SAT data section, of which some are drawn and solved."""
    if not isinstance(run_file.data, SatData):
        return [], []
    try:
        options = sat_options(run_file)
    except InputError:
        return [], []  # `data_problems` tells
    errors, warnings = list[Problem](), list[Problem]()
    for name in options.sources:
        place = _place(options, name)
        try:
            found = _sample(options, name, FilePath.cwd())
        except InputError as error:
            errors.append(Problem((*place, "files"), str(error)))
            continue
        errors += [Problem(place, text) for text in _unfit(found, options, name)]
        if found.collection is not None:
            errors += [Problem((*place, "files"), text) for text in _too_few(found.collection, options, name)]
            if found.collection.left_out:
                warnings.append(Problem((*place, "files"), f"give {found.collection}"))
        warnings += [Problem(place, text) for text in _left_out(found, options)]
    return errors, warnings


def rows_text(run_file: RunFile) -> str:
    """Say how many rows a SAT data section gives, how often the run trains on each formula, and which are left out."""
    options = sat_options(run_file)
    samples = [_sample(options, name, FilePath.cwd()) for name in options.parts]
    too_long = sum(found.too_long for found in samples) / sum(found.drawn for found in samples)
    left_out = f"; {too_long:.1%} of all drawn are too long for a row and left out" if too_long else ""
    rows, tokens = sat_rows(run_file), run_file.training.tokens
    packed = ", several formulas in each" if options.packing else ""
    times = tokens / (rows * options.context)
    often = "each formula is trained on once" if times < ONCE else f"each formula is trained on {times:.3g} times"
    return f"about {rows:,} rows of {options.context:,} tokens{packed}; {often}{left_out}"


def sat_rows(run_file: RunFile) -> int:
    """Estimate the rows to train on of a SAT data section."""
    from barnraise.data.sat.options import TRAINING

    options = sat_options(run_file)
    number = options.amount.number
    if number is None:
        return max(1, sum(part.tokens for part in options.parts.values()) // options.context)
    if not options.packing:
        return number
    return max(1, round(number * _sample(options, TRAINING, FilePath.cwd()).mean_tokens / options.context))


def _unfit(found: Sample, options: SatOptions, name: str) -> Iterator[str]:
    """Yield why no dataset can be made of formulas like these."""
    for text in found.cut_off(_number(found, options, name)):
        yield f"has traces longer than the context: {text}; raise context, or draw smaller formulas"
    for text in found.lacking(_number(found, options, name)):
        yield f"asks for what the formulas cannot give: {text}; change backtracking, variables or clause_ratio"


def _number(found: Sample, options: SatOptions, name: str) -> float:
    """Estimate the formulas that a source is to give."""
    if name not in options.parts:
        return next(choice.formulas for choice in options.held_out_sets if choice.name == name)
    if options.amount.number is not None:
        return options.amount.number
    length = found.mean_tokens if options.packing else options.context
    return max(1.0, options.parts[name].tokens / max(1.0, length))


def _too_few(found: Collection, options: SatOptions, name: str) -> Iterator[str]:
    """Yield why files have too few formulas to hold some out."""
    number, files = len(found.formulas), options.sources[name].files
    has = f"give {count_text(number, 'formula')}"
    sets = {choice.name: choice for choice in options.held_out_sets}
    if name in sets and number < sets[name].formulas:
        yield f"{has}, but {sets[name].formulas:,} are asked for; give more files, or lower formulas"
    held_out = sum(choice.formulas for choice in sets.values() if choice.source.files == files)
    held_out += options.held_out if options.natural.files == files else 0
    if name not in sets and number <= held_out:
        yield (
            f"{has}, of which {held_out:,} are to be held out; give more files, or lower data.held_out or the formulas "
            "of data.held_out_sets"
        )


def _left_out(found: Sample, options: SatOptions) -> Iterator[str]:
    from barnraise.data.sat.sample import NOTABLE, holding

    if NOTABLE * found.drawn <= found.too_long < found.drawn:
        yield (
            f"leaves formulas out: {found.too_long:,} of {found.drawn:,} drawn have more than {options.context:,} "
            f"tokens with their traces, and these need most search; {holding(found.solved)}: raise context"
        )


def _place(options: SatOptions, name: str) -> Path:
    from barnraise.data.sat.options import stage_name

    for place in range(len(options.stages)):
        if name == stage_name(place):
            return "data", "stages", place
    names = [choice.name for choice in options.held_out_sets]
    return ("data", "held_out_sets", names.index(name)) if name in names else ("data",)


@lru_cache(maxsize=64)
def _sample(options: SatOptions, name: str, folder: FilePath) -> Sample:
    """Return the sample of a source; relative `files` are looked for in `folder`, the working directory."""
    from barnraise.data.sat.sample import sample

    return sample(options, options.sources[name])
