"""The summary of a model's scores claims no more than the number of formulas allows."""

from __future__ import annotations

import dataclasses

import pytest

from barnraise.account import scores as sat
from barnraise.data.sat.evaluation import SatScores

SEARCHED = SatScores(60, 0.4, 0.11, 0.23, 0.5, 0.52, "")
SCORES = SatScores(200, 0.9, 0.5, 0.75, 0.5, 0.98, "formula: (1)\n  unit 1\n  SAT\nchecker: accepted")


@pytest.mark.parametrize(
    ("right", "formulas", "expected"),
    [
        (0.75, 200, "beat guessing by 25.0 points"),
        (0.55, 200, "no better than guessing"),
        (0.55, 5000, "beat guessing by 5.0 points"),
        (0.5, 200, "no better than guessing"),
        (0.2, 200, "worse than guessing"),
        (1.0, 2, "no better than guessing"),
        (1.0, 50, "beat guessing by 50.0 points"),
    ],
)
def test_judgement_claims_what_the_sample_allows(right: float, formulas: int, expected: str) -> None:
    assert expected in sat.judgement(dataclasses.replace(SCORES, verdicts_right=right, formulas=formulas))


def test_lines_hold_every_share_and_the_example() -> None:
    text = "\n".join(sat.lines(SCORES))
    for part in ("200 held-out formulas", "90.0%", "50.0%", "75.0%", "98.0%", "formula: (1)", "checker: accepted"):
        assert part in text
    assert "need search" not in text


def test_formulas_that_need_search_have_figures_of_their_own() -> None:
    scores = dataclasses.replace(SCORES, backtracking=SEARCHED)
    text = "\n".join(sat.lines(scores))
    for part in ("60 more that need search", "11.0%", "23.0%", "52.0%", "worse than guessing", "not learned to search"):
        assert part in text
    assert sat.as_json(scores)["backtracking"] == sat.as_json(SEARCHED)
    assert "backtracking" not in sat.as_json(SCORES)
