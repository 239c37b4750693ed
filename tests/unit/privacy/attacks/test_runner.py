"""The runner counts successes of real trials, repeatably, and refuses what cannot be played."""

from __future__ import annotations

import pytest
from tests.attack_settings import setting_of

from barnraise.core.errors import InputError, UnknownNameError
from barnraise.privacy.attacks.protections import Protection
from barnraise.privacy.attacks.runner import AttackResult, make_protection, play
from barnraise.privacy.attacks.setting import AttackSetting


def played(attacks: list[str], *protections: str, trials: int = 10) -> list[AttackResult]:
    def make(protection: Protection) -> AttackSetting:
        return setting_of(protection.name)

    return play(make, attacks, [make_protection(text) for text in protections], trials=trials, seed=3)


def test_an_attack_on_plain_updates_beats_its_control() -> None:
    (result,) = played(["tokens"], "none")
    assert result.attacked.successes == 10
    assert result.control.successes == 0
    assert result.comparison.p_value < 0.001
    assert result.comparison.effect > 3.0


def test_an_attack_on_a_masked_update_does_not() -> None:
    (result,) = played(["tokens"], "masked", trials=20)
    assert result.attacked.successes == 0
    assert result.mean_score <= result.mean_control + 0.1


def test_the_same_seed_gives_the_same_results() -> None:
    first, second = (played(["tokens"], "noise:0.01") for _ in range(2))
    assert first[0].mean_score == second[0].mean_score


def test_results_are_told_as_they_come_and_are_plain() -> None:
    told = list[AttackResult]()
    found = play(lambda _: setting_of(), ["tokens"], [make_protection("none")], trials=2, each=told.append)
    assert found == told
    assert found[0].as_dict()["attacked"] == {
        "successes": 2,
        "trials": 2,
        "low": pytest.approx(0.1581, abs=1e-4),
        "high": 1.0,
    }


def test_no_trials_are_refused() -> None:
    with pytest.raises(InputError, match="0 trials"):
        played(["tokens"], "none", trials=0)


def test_an_unknown_attack_is_refused_before_any_trial() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'tokens'"):
        played(["token"], "none")
