"""The file of a matrix of attacks: a YAML file of its own, around a run file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError

from barnraise.config.document import Document
from barnraise.config.load import located
from barnraise.config.problems import Path, Problem, refusal, shown
from barnraise.config.section import Section
from barnraise.core.errors import InputError, nearest

MOST = 64
"""Entries of each list."""

MOST_NODES = 1000

Named = str | dict[str, Any]
Members = Annotated[str, Field(pattern=r"^\d{1,4} of \d{1,4}$")]


def _listed(value: object) -> object:
    """Return a single value as a list of one."""
    return [value] if isinstance(value, str | dict) else value


class MatrixFile(Section):
    """A matrix: every combination of its lists, such as attacks and rules, is a cell."""

    run: dict[str, Any] | str = Field(description="The run file, or its path beside this file; without workers.")
    attacks: Annotated[list[Named], Field(min_length=1, max_length=MOST)] = Field(
        description="Names of attacks, or sections with a kind and options."
    )
    rules: Annotated[list[str | list[str] | dict[str, Any]], Field(min_length=1, max_length=MOST)] = Field(
        description="Names of rules, chains, or keys of the run file with `aggregation.rule`; `attacks`, "
        "`liars`, `data`, `codecs` and `modes` beside them count for that rule instead."
    )
    liars: Annotated[list[Members], BeforeValidator(_listed), Field(min_length=1, max_length=MOST)] = Field(
        description="How many of how many nodes lie, as in `2 of 9`."
    )
    data: Annotated[list[Literal["iid", "skewed"]], BeforeValidator(_listed), Field(min_length=1, max_length=2)] = (
        Field(default=["iid"], description="Whether all nodes have rows of one kind.")
    )
    skew: Annotated[float, Field(gt=0, le=1000)] = Field(
        default=0.3, description="Dirichlet's concentration of skewed data; the smaller, the less alike the nodes."
    )
    codecs: Annotated[list[Named], BeforeValidator(_listed), Field(min_length=1, max_length=MOST)] = Field(
        default=["none"], description="Names of codecs, or keys of the run file with `exchange.compression`."
    )
    modes: Annotated[list[Literal["sync", "async"]], BeforeValidator(_listed), Field(min_length=1, max_length=2)] = (
        Field(default=["async"], description="Rounds that wait, or bounded staleness.")
    )
    seeds: Annotated[list[Annotated[int, Field(ge=0, le=2**31 - 1)]], Field(min_length=1, max_length=MOST)] = Field(
        default=[0], description="Each cell is played with each of them."
    )


_CHOICES = {"data": ("iid", "skewed"), "modes": ("sync", "async")}


def matrix_of(document: Document) -> MatrixFile:
    """Check `document` against the schema; RunFileError lists every problem."""
    try:
        return MatrixFile.model_validate(document.content)
    except ValidationError as error:
        raise refusal(document.name, located(list(_problems(error)), document)) from None


OWN = "attacks", "liars", "data", "codecs", "modes"
"""Lists that a rule may have of its own."""


def for_rule(matrix: MatrixFile, rule: Mapping[str, Any]) -> MatrixFile:
    """Return the matrix with the lists that count for one rule: its own, where it has some.

    Raises InputError.
    """
    own = {name: rule[name] for name in OWN if name in rule}
    try:
        return MatrixFile.model_validate(matrix.model_dump() | own) if own else matrix
    except ValidationError as error:
        raise InputError("; ".join(f"{problem.path[0]} {problem.message}" for problem in _problems(error))) from None


def _problems(error: ValidationError) -> Iterator[Problem]:
    """Yield one problem for each wrong key; pydantic reports each member of a list's unions."""
    keys, seen = MatrixFile.model_fields, set[Path]()
    for detail in error.errors(include_url=False, include_context=False):
        path: Path = (str(detail["loc"][0]), *(key for key in detail["loc"][1:2] if isinstance(key, int)))
        if path in seen:
            continue
        seen.add(path)
        name = str(path[0])
        if detail["type"] == "extra_forbidden":
            close = nearest(name, keys)
            yield Problem(
                path, f"unknown key; did you mean '{close}'?" if close else f"unknown key; known: {', '.join(keys)}"
            )
        elif detail["type"] == "missing":
            yield Problem(path, f"is missing; {keys[name].description}")
        elif detail["type"] == "string_pattern_mismatch":
            yield Problem(path, f"is {shown(detail['input'])}, but must be as in `2 of 9`")
        elif detail["type"] == "literal_error":
            close = nearest(str(detail["input"]), _CHOICES[name])
            hint = f"; did you mean '{close}'?" if close else ""
            yield Problem(path, f"is {shown(detail['input'])}, but must be {' or '.join(_CHOICES[name])}{hint}")
        elif detail["type"] == "too_short":
            yield Problem(path, f"is {shown(detail['input'])}, but must list one at least. {keys[name].description}")
        else:
            said = detail["msg"][:1].lower() + detail["msg"][1:]
            yield Problem(path, f"is {shown(detail['input'])}, but {said}. {keys[name].description}")
