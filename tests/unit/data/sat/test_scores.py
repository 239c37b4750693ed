"""Counts add up, shares have Wilson's intervals, and the headline is of formulas that need search."""

from __future__ import annotations

from dataclasses import fields

import pytest
from scipy.stats import binomtest

from barnraise.data.sat.scores import AnswerCounts, SatScores, SetScores, band_of, interval, total

ONE = AnswerCounts(*range(1, 12))
EASY = AnswerCounts(formulas=10, satisfiable=6, verdicts=9)
HARD = AnswerCounts(formulas=5, satisfiable=1, verdicts=2)


@pytest.mark.parametrize(("right", "number"), [(0, 1), (1, 1), (96, 100), (300, 300), (0, 300), (7, 11)])
def test_intervals_are_those_of_scipy(right: int, number: int) -> None:
    theirs = binomtest(right, number).proportion_ci(0.95, method="wilson")
    assert interval(right, number) == pytest.approx((theirs.low, theirs.high), abs=1e-6)


def test_no_formula_says_nothing() -> None:
    assert interval(0, 0) == (0.0, 1.0)
    assert total([]) == AnswerCounts()


def test_counts_add_up_by_name() -> None:
    both = total([ONE, ONE, AnswerCounts()])
    assert all(getattr(both, name.name) == 2 * getattr(ONE, name.name) for name in fields(AnswerCounts))


def test_bands_cover_every_number_of_decisions_taken_back() -> None:
    assert [band_of(number) for number in range(8)] == [
        "0",
        "1",
        "2",
        "3",
        "4 to 5",
        "4 to 5",
        "6 or more",
        "6 or more",
    ]


def test_the_headline_leaves_easy_and_unfamiliar_formulas_out() -> None:
    mixed = SetScores("held out", {"0": EASY, "1": HARD})
    searched = SetScores("searched", {"1": HARD, "6 or more": HARD})
    beyond = SetScores("beyond", {"0": EASY, "2": HARD}, familiar=False)
    scores = SatScores((mixed, searched, beyond), "")
    assert list(scores.bands) == ["0", "1", "6 or more"]
    assert scores.bands["1"] == total([HARD, HARD])
    assert scores.searched == total([HARD] * 3)
    assert (mixed.all.formulas, mixed.searched, beyond.searched) == (15, HARD, HARD)


def test_the_majority_is_the_more_frequent_verdict() -> None:
    assert (EASY.majority, HARD.majority, AnswerCounts().majority) == (6, 4, 0)
