"""The skill of a model that was trained on satisfiability, in figures and cautious sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnraise.data.sat.evaluation import SatScores


def shares(scores: SatScores) -> list[tuple[str, str]]:
    """Return the scores as (share, description)."""
    return [
        (f"{scores.verdicts_right:.1%}", "of its verdicts are right"),
        (f"{scores.traces_accepted:.1%}", "of its whole traces prove their verdict, says an independent checker"),
        (f"{scores.steps_accepted:.1%}", "of the trace steps that it wrote hold"),
        (f"{scores.majority:.1%}", "for comparison: verdicts right by always giving the more frequent one"),
        (f"{scores.propagation:.1%}", "for comparison: by unit propagation alone, unsatisfiable where it conflicts"),
    ]


def judgement(scores: SatScores, skill: str = "solve") -> str:
    """Describe the verdicts in one sentence that claims no more than their number allows.

    `skill` is what such formulas take.

    >>> from barnraise.data.sat.evaluation import SatScores
    >>> judgement(SatScores(400, 0.9, 0.5, 0.88, 0.5, 0.8, ""))
    'Its verdicts beat guessing by 38.0 points (standard error 1.6).'
    >>> judgement(SatScores(100, 0.1, 0.0, 0.53, 0.5, 0.8, ""))
    'Its verdicts are no better than guessing (+3.0 points, standard error 5.0): it has not learned to solve.'
    """
    share = scores.verdicts_right
    ahead = share - scores.majority
    error = math.sqrt(max(share * (1 - share), 0.25 / scores.formulas) / scores.formulas)
    figures = f"{ahead * 100:+.1f} points, standard error {error * 100:.1f}"
    if ahead > 2 * error:
        return f"Its verdicts beat guessing by {ahead * 100:.1f} points (standard error {error * 100:.1f})."
    if ahead < -2 * error:
        return f"Its verdicts are worse than guessing ({figures}): it has not learned to {skill}."
    return f"Its verdicts are no better than guessing ({figures}): it has not learned to {skill}."


FIGURES = ("formulas", "steps_accepted", "traces_accepted", "verdicts_right", "majority", "propagation")


def as_json(scores: SatScores) -> dict[str, Any]:
    told = {name: getattr(scores, name) for name in FIGURES}
    return told | ({"backtracking": as_json(scores.backtracking)} if scores.backtracking else {})


def by_kind(scores: SatScores) -> Iterator[tuple[str, SatScores, str]]:
    """Yield the scores of each kind of held-out formulas, its name, and the skill that it takes."""
    yield f"{scores.formulas} held-out formulas, none of them seen in training", scores, "solve"
    if found := scores.backtracking:
        text = f"{found.formulas} more that need search: a decision has to be taken back"
        yield text, found, "search"


def lines(scores: SatScores) -> Iterator[str]:
    """Yield the scores as lines for users."""
    for which, found, skill in by_kind(scores):
        yield f"on {which}:"
        yield from (f"  {share:>6}  {what}" for share, what in shares(found))
        yield f"  {judgement(found, skill)}"
    yield ""
    yield "one of these formulas, and the whole answer of the model:"
    yield from (f"  {line}" for line in scores.example.splitlines())
