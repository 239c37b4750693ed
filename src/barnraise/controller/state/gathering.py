"""The effect of decisions on cohorts, as a part of `fold`.

Which assignments belong together follows from the decisions alone: an assignment may name its cohort; a copy names the
open work that it repeats; workers that measure the same rows of a version share a piece; in a synchronous round no
result may be stale, and all of its tasks start from the same version. A cohort is dropped once no member can bring a
result, unless its results are needed.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnraise.controller.state.cohorts import IN, OUT, Cohort
from barnraise.controller.state.state import State, Work
from barnraise.core.types import Completion
from barnraise.ledger.decisions import Assigned

COPIES = Completion("first")
"""The rule of work and its copies."""


def join(state: State, d: Assigned, work: Work, original: Work | None) -> tuple[int, ...]:
    """Let an assignment join its cohorts, which it opens where they are missing; return their numbers.

    `original` is the open work that it copies.
    """
    found = [cohort.number] if (cohort := _gathered(state, work)) is not None else []
    if original is not None:
        copies = Cohort(d.assignment, d.kind, d.base, COPIES, d.rows, places=2)
        state.cohorts[copies.number] = copies
        copies.join(original.assignment, original.node)
        found.append(copies.number)
    for number in found:
        state.cohorts[number].join(d.assignment, d.node)
    return tuple(found)


def _gathered(state: State, work: Work) -> Cohort | None:
    """Return the cohort of its kind of task that the work belongs to; None where each is by itself."""
    if work.cohort:
        return state.cohorts.get(work.cohort) or _opened(state, work, work.cohort)
    if work.task.measures:
        return _piece(state, work)
    if work.task.trains and not work.terms.max_staleness and work.base == state.newest.version:
        cohort = state.round
        if cohort is None:
            cohort = _opened(state, work)
            state.newest.round = cohort.number
        return cohort
    return None


def _piece(state: State, work: Work) -> Cohort:
    for cohort in state.cohorts.values():
        if cohort.completion.rule == "agree" and (cohort.base, cohort.rows) == (work.base, work.rows):
            return cohort
    return _opened(state, work)


def _opened(state: State, work: Work, number: int = 0) -> Cohort:
    rows = work.rows if work.task.measures else ()
    cohort = Cohort(number or work.assignment, work.kind, work.base, work.task.gathers, rows)
    state.cohorts[cohort.number] = cohort
    return cohort


def rejoin(state: State, work: Work) -> None:
    """Let work that its node has again take its place in its cohorts."""
    for number in work.cohorts:
        if number in state.cohorts:
            state.cohorts[number].join(work.assignment, work.node)


def settle(state: State, work: Work, accepted: bool, time: float) -> None:
    """Record in its cohorts that work has ended: accepted, or without a result that counts."""
    for number in work.cohorts:
        if (cohort := state.cohorts.get(number)) is not None:
            cohort.settle(work.assignment, IN if accepted else OUT, time, state.num_live)
    tidy(state, work.cohorts)


def done_elsewhere(state: State, work: Work) -> bool:
    """Return whether a copy of the work is open, or was accepted."""
    cohort = state.copies_of(work)
    return cohort is not None and next(cohort.others(work.assignment), None) is not None


def needed(state: State, cohort: Cohort) -> bool:
    """Return whether a cohort is kept: for members that are open, or for the results of the others."""
    if cohort.open or cohort.number == state.newest.round:
        return True
    if cohort.completion.rule == "sum":
        return not cohort.members.keys().isdisjoint(state.merging)
    evaluations = state.record.evaluations
    return cohort.completion.rule == "agree" and cohort.base > (evaluations[-1][0] if evaluations else -1)


def tidy(state: State, numbers: Iterable[int]) -> None:
    """Drop those of the cohorts that are not needed any more."""
    for number in numbers:
        if number in state.cohorts and not needed(state, state.cohorts[number]):
            del state.cohorts[number]
