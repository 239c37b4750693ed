"""The skill of a model that was trained on satisfiability, in figures with intervals and cautious sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from barnraise.core.units import count_text

if TYPE_CHECKING:
    from barnraise.data.sat.scores import AnswerCounts, Draws, SatScores

Rows = list[tuple[str, ...]]

SET_HEADER = ("held-out set", "formulas", "verdicts", "whole traces", "assignments", "majority", "propagation", "guess")
BAND_HEADER = ("taken back", "formulas", "verdicts", "whole traces", "propagation", "guess")
BEYOND = "(beyond training)"
EXPLAINED = (
    "Ranges are 95% intervals (Wilson). Verdicts: the last token is right. Whole traces: an independent checker "
    "accepts every step. Assignments: of satisfiable formulas, the share for which the trace ends with one that "
    "satisfies them. For comparison, verdicts that are right: majority, by always giving the more frequent one; "
    "propagation, by unit propagation alone; guess, by propagation and one random decision. Taken back: the number of "
    "decisions that the solver takes back, over the sets that are not beyond training."
)


def shares(tally: AnswerCounts, draws: Draws | None = None) -> list[tuple[str, str]]:
    """Return the scores as (share, description)."""
    number = tally.formulas
    found = [
        (share_text(tally.verdicts, number), "of its verdicts are right"),
        (share_text(tally.traces, number), "of its whole traces prove their verdict, says an independent checker"),
        (share_text(tally.assignments, tally.satisfiable), "of the satisfiable formulas: it found an assignment"),
        (f"{_share(tally.accepted, tally.steps):.1%}", "of the trace steps that it wrote hold"),
    ]
    if draws is not None:
        told = f"have a trace that the checker accepts among {draws.number} (temperature {draws.temperature:g})"
        found.append((share_text(tally.drawn_traces, number), told))
        told = f"of the verdicts are right if the checker chooses among {draws.number} traces"
        found.append((share_text(tally.drawn_verdicts, number), told))
    return [*found, *((f"{share:.1%}", f"for comparison: verdicts right {how}") for how, share in _baselines(tally))]


def judgement(tally: AnswerCounts, skill: str = "solve") -> str:
    """Describe the verdicts beside the best trivial ones, in a sentence that claims what their number allows.

    `skill` is what such formulas take.

    >>> from barnraise.data.sat.scores import AnswerCounts
    >>> judgement(AnswerCounts(400, 200, 352, 200, propagation=160, decision=180))
    'Its verdicts beat the best of the guesses by 38.0 points (standard error 1.6).'
    """
    share, best = _share(tally.verdicts, tally.formulas), max(share for _, share in _baselines(tally))
    error = math.sqrt(max(share * (1 - share), 0.25 / tally.formulas) / tally.formulas)
    ahead, guess = share - best, "the best of the guesses"
    figures = f"{ahead * 100:+.1f} points, standard error {error * 100:.1f}"
    if ahead > 2 * error:
        return f"Its verdicts beat {guess} by {ahead * 100:.1f} points (standard error {error * 100:.1f})."
    if ahead < -2 * error:
        return f"Its verdicts are worse than {guess} ({figures}): it has not learned to {skill}."
    return f"Its verdicts are no better than {guess} ({figures}): it has not learned to {skill}."


def headlines(scores: SatScores) -> Iterator[tuple[str, AnswerCounts, str]]:
    """Yield the groups of formulas with figures in full: their names, counts, and the skill that they take.

    Formulas that need search come first, as unit propagation settles others.
    """
    if (found := scores.searched).formulas:
        which = count_text(found.formulas, "held-out formula")
        yield f"{which} that need search: the solver takes a decision back", found, "search"
    for one in scores.sets[:1]:
        which = count_text(one.all.formulas, "held-out formula")
        yield f"{which} distributed as those of training", one.all, "solve"


def set_rows(scores: SatScores) -> Rows:
    """Return a row for each held-out set, in the columns of SET_HEADER."""
    return [
        (
            one.name if one.familiar else f"{one.name} {BEYOND}",
            f"{tally.formulas:,}",
            *_figures(tally),
            share_text(tally.assignments, tally.satisfiable),
            f"{_share(tally.majority, tally.formulas):.1%}",
            *_guesses(tally),
        )
        for one in scores.sets
        if (tally := one.all).formulas
    ]


def band_rows(scores: SatScores) -> Rows:
    """Return a row for each number of decisions taken back, in the columns of BAND_HEADER, over the familiar sets."""
    return [(band, f"{tally.formulas:,}", *_figures(tally), *_guesses(tally)) for band, tally in scores.bands.items()]


def lines(scores: SatScores) -> Iterator[str]:
    """Yield the figures in full as lines for users."""
    for which, tally, skill in headlines(scores):
        yield f"on {which}:"
        found = shares(tally, scores.draws)
        width = max(len(share) for share, _ in found)
        yield from (f"  {share:<{width}}  {what}" for share, what in found)
        yield f"  {judgement(tally, skill)}"


def tables(scores: SatScores) -> Iterator[tuple[Sequence[str], Rows]]:
    """Yield the header and the rows of each table that has more than one row."""
    for header, rows in ((SET_HEADER, set_rows(scores)), (BAND_HEADER, band_rows(scores))):
        if len(rows) > 1:
            yield header, rows


def example_lines(scores: SatScores) -> Iterator[str]:
    """Yield one formula and the model's whole answer as lines for users."""
    yield "one of these formulas, and the whole answer of the model:"
    yield from (f"  {line}" for line in scores.example.splitlines())


def as_json(scores: SatScores) -> dict[str, Any]:
    """Return all figures for programs: counts, shares and intervals."""
    found: dict[str, Any] = {
        "searched": _values(scores.searched, scores.draws),
        "bands": {band: _values(tally, scores.draws) for band, tally in scores.bands.items()},
        "sets": [
            {"name": one.name, "familiar": one.familiar, **_values(one.all, scores.draws)}
            | {"bands": {band: _values(tally, scores.draws) for band, tally in one.bands.items()}}
            for one in scores.sets
        ],
        "example": scores.example,
    }
    return found | ({} if scores.draws is None else {"draws": asdict(scores.draws)})


def share_text(right: int, number: int) -> str:
    """Write a share with its interval.

    >>> share_text(96, 100), share_text(0, 0)
    ('96.0% (90-98)', '-')
    """
    from barnraise.data.sat.scores import interval

    if not number:
        return "-"
    low, high = interval(right, number)
    return f"{right / number:.1%} ({low * 100:.0f}-{high * 100:.0f})"


def _values(tally: AnswerCounts, draws: Draws | None) -> dict[str, Any]:
    from barnraise.data.sat.scores import interval

    number = tally.formulas
    found = {
        "formulas": number,
        "satisfiable": tally.satisfiable,
        "verdicts_right": _share(tally.verdicts, number),
        "verdicts_interval": interval(tally.verdicts, number),
        "traces_accepted": _share(tally.traces, number),
        "traces_interval": interval(tally.traces, number),
        "assignments_found": _share(tally.assignments, tally.satisfiable),
        "steps_accepted": _share(tally.accepted, tally.steps),
        "majority": _share(tally.majority, number),
        "propagation": _share(tally.propagation, number),
        "one_decision": _share(tally.decision, number),
    }
    if draws is None:
        return found
    more = {"verdicts_right": tally.drawn_verdicts, "traces_accepted": tally.drawn_traces}
    return found | {f"drawn_{name}": _share(right, number) for name, right in more.items()}


def _baselines(tally: AnswerCounts) -> list[tuple[str, float]]:
    return [
        ("by always giving the more frequent one", _share(tally.majority, tally.formulas)),
        ("by unit propagation alone, unsatisfiable where it conflicts", _share(tally.propagation, tally.formulas)),
        ("by unit propagation and one random decision", _share(tally.decision, tally.formulas)),
    ]


def _figures(tally: AnswerCounts) -> tuple[str, str]:
    return share_text(tally.verdicts, tally.formulas), share_text(tally.traces, tally.formulas)


def _guesses(tally: AnswerCounts) -> tuple[str, str]:
    number = tally.formulas
    return f"{_share(tally.propagation, number):.1%}", f"{_share(tally.decision, number):.1%}"


def _share(right: int, number: int) -> float:
    return right / number if number else 0.0
