"""The form of the compatibility table: its rows and their view of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from barnraise.config.policy_sections import (
    AggregationSection,
    EvaluationSection,
    ExchangeSection,
    StalenessSection,
    TrustSection,
)
from barnraise.config.problems import Path
from barnraise.config.schema import ControllerSection, RunFile, TrainingSection
from barnraise.plan.choices import Aggregation, Choice, Choices
from barnraise.plan.purpose import Purpose

T = TypeVar("T")
Found = Iterator[tuple[Path, str]]


STATELESS = "stateless"


def feeds_back(run_file: RunFile) -> bool:
    """Return whether parts left out by compression are sent later: by the run file, else where tasks are stateful."""
    given = run_file.exchange.error_feedback
    return run_file.training.tasks != STATELESS if given is None else given


class Unresolved(Exception):
    """A row asked for an invalid policy, so the row has no result."""


@dataclass(frozen=True)
class Case:
    """The view of a run for the rows.

    `num_nodes` is how many workers start with the run, None when that is not known.
    """

    run_file: RunFile
    choices: Choices
    purpose: Purpose
    num_nodes: int | None

    @property
    def training(self) -> TrainingSection:
        return self.run_file.training

    @property
    def controller(self) -> ControllerSection:
        return self.run_file.controller

    @property
    def exchange(self) -> ExchangeSection:
        return self.run_file.exchange

    @property
    def aggregation(self) -> AggregationSection:
        return self.run_file.aggregation

    @property
    def staleness(self) -> StalenessSection:
        return self.run_file.staleness

    @property
    def trust(self) -> TrustSection:
        return self.run_file.trust

    @property
    def evaluation(self) -> EvaluationSection:
        return self.run_file.evaluation

    @property
    def compression(self) -> Choice:
        return _resolved(self.choices.compression)

    @property
    def downlink(self) -> Choice:
        return _resolved(self.choices.downlink)

    @property
    def rule(self) -> Aggregation:
        return _resolved(self.choices.aggregation)

    @property
    def outer(self) -> Choice:
        return _resolved(self.choices.outer)

    @property
    def inner(self) -> Choice:
        return _resolved(self.choices.inner)


@dataclass(frozen=True)
class Row:
    """A combination that cannot work: `what`, `why`, and what to do `instead`."""

    what: str
    why: str
    instead: str
    find: Callable[[Case], Found]
    warning: bool


def adding_to(rows: list[Row]) -> Callable[..., Callable[[Callable[[Case], Found]], Callable[[Case], Found]]]:
    """Return a decorator for `rows`: the function below it finds the case that the decorator's arguments describe."""

    def row(
        what: str, why: str, instead: str, warning: bool = False
    ) -> Callable[[Callable[[Case], Found]], Callable[[Case], Found]]:
        def add(find: Callable[[Case], Found]) -> Callable[[Case], Found]:
            rows.append(Row(what, why, instead, find, warning))
            return find

        return add

    return row


def either(names: Iterable[str]) -> str:
    """Join names as a choice, in a remedy.

    >>> either(["a", "b", "c"])
    'a, b or c'
    """
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def rule_name(case: Case) -> str:
    return "+".join(case.rule.names)


def rule_text(case: Case) -> str:
    """Return the aggregation rule with its f, as a message names it."""
    return str(replace(case.rule, fallback=None))


def _resolved(choice: T | None) -> T:
    if choice is None:
        raise Unresolved
    return choice
