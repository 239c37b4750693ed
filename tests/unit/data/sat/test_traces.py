from __future__ import annotations

import pytest

from barnraise.core.errors import DataError, UnknownNameError
from barnraise.data.sat import dpll, traces
from barnraise.data.sat.dimacs import Formula

FORMULA = Formula(3, ((1, 2), (1, -2), (-1, 2, 3), (-1, -2), (-1, -3)))  # unsatisfiable
TRACE = "D 1 U -2 U 3 B -1 U 2 UNSAT"


def test_the_checker_knows_a_good_trace() -> None:
    assert dpll.solve(FORMULA, heuristic="first").trace == TRACE.split()
    assert traces.check(FORMULA, TRACE.split()) == (True, "")


@pytest.mark.parametrize(
    ("trace", "reason"),
    [
        ("", "ends without a verdict"),
        ("D 1 U -2 U 3", "ends without a verdict"),
        ("UNSAT", "step 1 (UNSAT): there is no conflict"),
        ("SAT", "clause 1 does not hold yet"),
        ("D 1 U -2 SAT", "clause 3 does not hold yet"),
        ("U 1", "no clause is unit"),
        ("D 1 U 2", "no clause is unit"),
        ("D 1 D -1", "variable 1 is assigned already"),
        ("D 4", "the formula has 3 variables"),
        ("D 0", "is no step"),
        ("D x", "is no step"),
        ("D", "is no step"),
        ("1 D", "is no step"),
        ("<pad>", "is no step"),
        ("D 1 2", "does not restate"),
        ("D 1 B -1", "goes back without a conflict"),
        ("D 2 U 1 D 3", "that is a conflict"),
        ("D 1 U -2 U 3 UNSAT", "decision 1 is still open"),
        ("D 1 U -2 U 3 B 2", "the last open decision is 1"),
        ("D 1 U -2 U 3 B -1 U 2 B 1", "no decision is open"),
        ("D 1 U -2 U 3 B -1 U 2 UNSAT UNSAT", "after the verdict"),
        ("D 1 U -2 U 3 B -1 U 2 UNSAT 1", "is no step"),
    ],
)
def test_the_checker_says_what_is_wrong(trace: str, reason: str) -> None:
    valid, why = traces.check(FORMULA, trace.split(), style="terse")
    assert not valid
    assert reason in why


def test_restated_clauses_are_checked_token_by_token() -> None:
    good = dpll.solve(FORMULA, style="restated", slots=6).trace
    assert traces.check(FORMULA, good, slots=6) == (True, "")
    words = {"D", "U", "B", "SAT", "UNSAT"}
    for place, token in enumerate(good):
        if token in words or good[place - 1] in words:
            continue
        bad = [*good[:place], "F" if token != "F" else "T", *good[place + 1 :]]
        assert not traces.check(FORMULA, bad, slots=6)[0]
        assert not traces.check(FORMULA, good[:place] + good[place + 1 :], slots=6)[0]


def test_a_terse_trace_does_not_pass_for_a_restated_one() -> None:
    assert traces.check(FORMULA, TRACE.split(), style="restated")[0] is False


def test_the_score_counts_leading_steps() -> None:
    score = traces.score(FORMULA, ["D", "1", "U", "-2", "U", "2", "B", "-1", "U", "2", "UNSAT"])
    assert (score.accepted, score.total, score.valid, score.verdict) == (2, 6, False, False)
    whole = traces.score(FORMULA, TRACE.split())
    assert (whole.accepted, whole.total, whole.valid, whole.verdict) == (6, 6, True, False)
    nothing = traces.score(FORMULA, [])
    assert (nothing.accepted, nothing.total, nothing.verdict) == (0, 0, None)


def test_parse_takes_tokens_and_nothing_else() -> None:
    text = "D 1 T -2,3 F\nU -2 T T F UNSAT"
    assert traces.parse(text) == text.split()
    for bad in ("D 1 maybe", "d 1", "D 01", "1,", "SAT.", "D \u0661"):
        with pytest.raises(DataError, match="word"):
            traces.parse(bad)


def test_unknown_style() -> None:
    with pytest.raises(UnknownNameError, match="trace style"):
        traces.check(FORMULA, [], style="long")
