"""The tables of `sat_search.py`: the scores of each trial, and the tokens after which it passed the targets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from _sat_loop import Point, Score, Tried
from _sat_trials import RECIPES

from barnraise.data.sat.scores import interval

VERDICTS, TRACES = 0.95, 0.90
"""Shares of right verdicts and of whole traces that are aimed at, where search is needed."""


def groups(tried: Sequence[Tried]) -> list[list[Tried]]:
    """Return the trials in groups that have the machine and the held-out sets in common."""
    found: dict[tuple[str, ...], list[Tried]] = {}
    for one in tried:
        found.setdefault((one.machine, *one.curve[-1].scores), []).append(one)
    return list(found.values())


def reached(tried: Sequence[Tried]) -> Iterator[str]:
    """Yield a table with the last scores of each trial of a group, and their 95% intervals."""
    yield from _head("trial", "change", "parameters", "formulas a step", "tokens", "tokens/s", *_sets(tried))
    for one in tried:
        last = one.curve[-1]
        scores = map(_score, last.scores.values())
        rate = f"{last.tokens / last.seconds:,.0f}"
        yield _row(one.name, RECIPES[one.name].title, f"{one.parameters:,}", f"{one.formulas:.0f}", _tokens(one), rate,
                   *scores)  # fmt: skip


def passed(tried: Sequence[Tried]) -> Iterator[str]:
    """Yield a table with the tokens after which each trial of a group first had both targets, by held-out set."""
    yield from _head("trial", *_sets(tried))
    for one in tried:
        yield _row(one.name, *(_passed(one.curve, name) for name in one.curve[-1].scores))


def points(one: Tried) -> Iterator[str]:
    """Yield a trial's curve, a line for each evaluation."""
    for point in one.curve:
        shares = "".join(
            f"{score.verdicts / score.formulas:8.1%} /{score.traces / score.formulas:6.1%}"
            for score in point.scores.values()
        )
        yield f"{one.name:<12}{point.tokens / 1e6:8.2f}M{point.seconds:8.0f} s  loss {point.loss:.4f}{shares}"


def _sets(tried: Sequence[Tried]) -> list[str]:
    """Return the names of a group's held-out sets; a number alone is one of variables."""
    return [f"{name} variables" if name.isdigit() else name for name in tried[0].curve[-1].scores]


def _passed(curve: Sequence[Point], name: str) -> str:
    """Return the tokens of the first point that has both targets; where none does, the nearest one."""
    for point in curve:
        if _missing(point.scores[name]) <= 0:
            return f"{point.tokens / 1e6:.1f}M"
    nearest = min(curve, key=lambda point: _missing(point.scores[name]))
    score = nearest.scores[name]
    verdicts, traces = score.verdicts / score.formulas, score.traces / score.formulas
    return f"no: {100 * verdicts:.0f} / {100 * traces:.0f} at {nearest.tokens / 1e6:.1f}M"


def _missing(score: Score) -> float:
    """Return by how much a score misses the target that it misses most; at most 0 where it has both."""
    return max(VERDICTS - score.verdicts / score.formulas, TRACES - score.traces / score.formulas)


def _tokens(one: Tried) -> str:
    done = one.curve[-1].tokens / 1e6
    if one.end == "done":
        return f"{done:.1f}M"
    return f"{done:.1f}M of {one.budget / 1e6:.1f}M ({one.end or 'stopped'})"


def _score(score: Score) -> str:
    return " / ".join(_share(right, score.formulas) for right in (score.verdicts, score.traces))


def _share(right: int, number: int) -> str:
    low, high = interval(right, number)
    return f"{100 * right / number:.0f} ({100 * low:.0f} to {100 * high:.0f})"


def _head(*names: str) -> Iterator[str]:
    yield _row(*names)
    yield "|" + "---|" * len(names)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
