"""Trails as tokens: made of a terse trace, read back, and refused where a copy is wrong."""

from __future__ import annotations

import pytest

from barnraise.data.sat import dpll, traces, trail
from barnraise.data.sat.dimacs import Formula

# The formula of the styles' table: unsatisfiable, with a decision that is taken back.
FORMULA = Formula(3, ((1, 2), (1, -2), (-1, 2, 3), (-1, -2), (-1, -3)))
TERSE = "D 1 U -2 U 3 B -1 U 2 UNSAT"
TRAIL = "D1 -2 3 F -1 2 F UNSAT"
STEPS = "D1 | D1 -2 | D1 -2 3 | F -1 | -1 2 | F UNSAT"


def test_the_solver_writes_each_style() -> None:
    for style, text in (("terse", TERSE), ("trail", TRAIL), ("trail_steps", STEPS)):
        result = dpll.solve(FORMULA, style=style, heuristic="lowest")
        assert result.trace == text.split()
        assert (result.num_decisions, result.num_backtracks) == (1, 1)
        assert traces.backtracks(result.trace, style) == 1
        assert traces.check(FORMULA, result.trace, style=style) == (True, "")


def test_the_trail_of_several_conflicts() -> None:
    """The copy holds the literals before the decision too, and each flipped decision stays until an earlier one is."""
    terse = "D 1 D 2 U 4 U 3 B -2 D 3 U 4 B -3 U -4 SAT"
    assert " ".join(trail.render(terse.split(), "trail")) == "D1 D2 4 3 F D1 -2 D3 4 F D1 -2 -3 -4 SAT"
    steps = "D1 | D1 D2 | D1 D2 4 | D1 D2 4 3 | F D1 -2 | D1 -2 D3 | D1 -2 D3 4 | F D1 -2 -3 | D1 -2 -3 -4 | SAT"
    assert trail.render(terse.split(), "trail_steps") == steps.split()


def test_a_negative_decision_is_turned_to_its_variable() -> None:
    assert trail.render(["D", "-2", "B", "2", "SAT"], "trail") == ["D-2", "F", "2", "SAT"]


@pytest.mark.parametrize(("style", "text"), [("trail", TRAIL), ("trail_steps", STEPS)])
def test_steps_are_read_back(style: str, text: str) -> None:
    steps = trail.steps(text.split(), style)
    assert [word for step in steps for word in step.words] == TERSE.split()
    assert [token for step in steps for token in step.tokens] == text.split()
    assert not any(step.fault for step in steps)


@pytest.mark.parametrize(
    ("style", "text", "accepted", "reason"),
    [
        ("trail", "", 0, "the trace ends without a verdict"),
        ("trail", "D1 -2 3 F", 3, "step 4 (F): ends where -1 must follow"),
        ("trail", "D1 -2 3 F -2", 3, "step 4 (F -2): token 1 of the trail is -1, but the copy has -2"),
        ("trail", "D1 -2 3 F D-1", 3, "token 1 of the trail is -1, but the copy has D-1"),
        ("trail", "D1 -2 3 F SAT", 3, "token 1 of the trail is -1, but the copy has SAT"),
        ("trail", "D1 -2 3 UNSAT", 3, "step 4 (UNSAT): UNSAT must follow an F"),
        ("trail", "D1 -2 3 F UNSAT", 3, "step 4 (F UNSAT): decision 1 is still open"),
        ("trail", "D1 F -1", 1, "step 2 (F -1): goes back without a conflict"),
        ("trail", "D1 -2 3 F -1 2 F -1", 5, "no decision is open; only UNSAT may follow"),
        ("trail", "D1 -2 3 F -1 2 F UNSAT UNSAT", 6, "step 7 (UNSAT): UNSAT must follow an F"),
        ("trail", "D1 -2 3 F -1 2 F UNSAT SAT", 6, "comes after the verdict"),
        ("trail", "F UNSAT", 0, "there is no conflict"),
        ("trail", "SAT", 0, "clause 1 does not hold yet"),
        ("trail", "1", 0, "no clause is unit with this literal"),
        ("trail", "D1 D1", 1, "variable 1 is assigned already"),
        ("trail", "D4", 0, "the formula has 3 variables"),
        ("trail", "D", 0, "is no step"),
        ("trail", "D1 |", 1, "is no step"),
        ("trail", "D 1", 0, "is no step"),
        ("trail", "<pad>", 0, "is no step"),
        ("trail", "1,2", 0, "is no step"),
        ("trail_steps", "D1 -2", 0, "step 1 (D1 -2): does not end in |"),
        ("trail_steps", "D1", 0, "step 1 (D1): does not end in |"),
        ("trail_steps", "D1 | -2 |", 1, "token 1 of the trail is D1, but the copy has -2"),
        ("trail_steps", "D1 | D1 |", 1, "step 2 (D1 |): is no step"),
        ("trail_steps", "D1 | D1", 1, "step 2 (D1): is no step"),
        ("trail_steps", "D1 | D1 -2 | D1 3 |", 2, "token 2 of the trail is -2, but the copy has 3"),
        ("trail_steps", "D1 | D1 -2 | D1 -2 3 | F -1", 3, "step 4 (F -1): does not end in |"),
        ("trail_steps", "D1 | UNSAT", 1, "token 1 of the trail is D1, but the copy has UNSAT"),
    ],
)
def test_the_checker_says_what_is_wrong(style: str, text: str, accepted: int, reason: str) -> None:
    score = traces.score(FORMULA, text.split(), style=style)
    assert not score.valid
    assert score.accepted == accepted
    assert reason in score.reason


def test_a_fault_of_a_copy_is_one_step() -> None:
    """The steps behind it are counted as those of the right copy would be."""
    text = "D1 | D1 2 7 | D1 -2 3 | F -1 | -1 2 | F UNSAT"
    score = traces.score(FORMULA, text.split(), style="trail_steps")
    assert (score.accepted, score.total) == (1, 6)


def test_every_single_change_of_a_token_is_noticed_or_right() -> None:
    """The only changes that pass take another unit literal directly before a conflict: those traces hold too."""
    words = ["D1", "D-1", "1", "-1", "D2", "2", "-2", "D3", "3", "-3", "F", "|", "SAT", "UNSAT", "<pad>"]
    for style, text in (("trail", TRAIL), ("trail_steps", STEPS)):
        good = text.split()
        changed = [[*good[:at], word, *good[at + 1 :]] for at in range(len(good)) for word in words if word != good[at]]
        changed += [good[:at] + good[at + 1 :] for at in range(len(good))]
        changed += [[*good[:at], word, *good[at:]] for at in range(len(good) + 1) for word in words]
        passed = [" ".join(trace) for trace in changed if traces.check(FORMULA, trace, style=style)[0]]
        assert len(changed) > 200
        assert sorted(passed) == sorted([text.replace("-2 3", "-2 -3"), text.replace("-1 2", "-1 -2")])
