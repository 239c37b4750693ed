"""The summary of a model's scores claims no more than the number of formulas allows."""

from __future__ import annotations

import dataclasses

import pytest

from barnraise.account import scores as sat
from barnraise.data.sat.scores import AnswerCounts, Draws, SatScores, SetScores

EASY = AnswerCounts(200, 100, 150, 100, 70, 1000, 900, propagation=196, decision=198)
HARD = AnswerCounts(60, 30, 14, 7, 3, 400, 160, propagation=31, decision=33)
EXAMPLE = "formula: (1)\n  unit 1\n  SAT\nchecker: accepted"
SCORES = SatScores((SetScores("held out", {"0": EASY, "2": HARD}), SetScores("5 variables", {"1": HARD})), EXAMPLE)


@pytest.mark.parametrize(
    ("right", "formulas", "expected"),
    [
        (150, 200, "beat the best of the guesses by 25.0 points"),
        (110, 200, "no better than the best of the guesses"),
        (2750, 5000, "beat the best of the guesses by 5.0 points"),
        (100, 200, "no better than the best of the guesses"),
        (40, 200, "worse than the best of the guesses"),
        (2, 2, "no better than the best of the guesses"),
        (50, 50, "beat the best of the guesses by 50.0 points"),
    ],
)
def test_judgement_claims_what_the_sample_allows(right: int, formulas: int, expected: str) -> None:
    assert expected in sat.judgement(AnswerCounts(formulas, formulas // 2, right))


def test_the_best_guess_is_the_measure() -> None:
    tally = AnswerCounts(200, 100, 170)
    assert "beat" in sat.judgement(tally)
    for name in ("propagation", "decision"):
        assert "no better" in sat.judgement(dataclasses.replace(tally, **{name: 170}))


def test_formulas_that_need_search_come_first() -> None:
    (first, tally, skill), (second, mixed, _) = sat.headlines(SCORES)
    assert first.startswith("120 held-out formulas that need search")
    assert tally == SCORES.searched
    assert skill == "search"
    assert second == "260 held-out formulas distributed as those of training"
    assert mixed.formulas == 260
    assert len(list(sat.headlines(SatScores((SetScores("held out", {"0": EASY}),), "")))) == 1


def test_lines_and_tables_hold_every_share_with_its_interval() -> None:
    text = "\n".join(sat.lines(SCORES))
    for part in ("23.3% (17-32)", "11.7% (7-19)", "10.0%", "40.0%", "51.7%", "55.0%", "not learned to search", "63.1%"):
        assert part in text
    (sets, set_rows), (bands, band_rows) = sat.tables(SCORES)
    assert [row[:2] for row in set_rows] == [("held out", "260"), ("5 variables", "60")]
    assert [row[:2] for row in band_rows] == [("0", "200"), ("1", "60"), ("2", "60")]
    assert all(len(row) == len(sets) for row in set_rows)
    assert all(len(row) == len(bands) for row in band_rows)
    assert set_rows[1][2:] == ("23.3% (14-35)", "11.7% (6-22)", "10.0% (3-26)", "50.0%", "51.7%", "55.0%")
    assert [line.strip() for line in sat.example_lines(SCORES)][1:] == [line.strip() for line in EXAMPLE.splitlines()]


def test_sets_beyond_training_are_marked_and_no_part_of_the_headline() -> None:
    beyond = SetScores("uf20", {"6 or more": HARD}, familiar=False)
    scores = SatScores((*SCORES.sets, beyond), EXAMPLE)
    (_, rows), (_, bands) = sat.tables(scores)
    assert [row[0] for row in rows] == ["held out", "5 variables", "uf20 (beyond training)"]
    assert [row[0] for row in bands] == ["0", "1", "2"]
    assert scores.searched == SCORES.searched


def test_one_set_and_one_band_make_no_table() -> None:
    assert not list(sat.tables(SatScores((SetScores("held out", {"0": EASY}),), "")))


def test_drawn_traces_are_a_second_figure() -> None:
    assert "temperature" not in "\n".join(sat.lines(SCORES))
    hard = dataclasses.replace(HARD, drawn_traces=30, drawn_verdicts=45)
    drawn = SatScores((SetScores("held out", {"1": hard}),), EXAMPLE, Draws(8, 0.7))
    text = "\n".join(sat.lines(drawn))
    assert "50.0% (38-62)  have a trace that the checker accepts among 8 (temperature 0.7)" in text
    assert "75.0% (63-84)  of the verdicts are right if the checker chooses among 8 traces" in text
    found = sat.as_json(drawn)
    assert found["draws"] == {"number": 8, "temperature": 0.7}
    assert found["searched"]["drawn_traces_accepted"] == 0.5
    assert "draws" not in sat.as_json(SCORES)


def test_programs_get_all_figures_by_set_and_band() -> None:
    found = sat.as_json(SCORES)
    assert found["searched"]["verdicts_right"] == 28 / 120
    assert [one["name"] for one in found["sets"]] == ["held out", "5 variables"]
    assert found["sets"][0]["bands"]["0"]["traces_accepted"] == 0.5
    assert found["sets"][1]["one_decision"] == 33 / 60
    assert found["bands"]["1"]["formulas"] == 60
    low, high = found["searched"]["traces_interval"]
    assert low < 14 / 120 < high
    assert found["example"] == EXAMPLE
