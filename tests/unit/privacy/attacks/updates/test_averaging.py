"""Repeated messages about the same rows."""

from __future__ import annotations

from tests.attack_settings import setting_of

from barnraise.privacy.attacks.runner import play_one


def test_a_mean_of_noisy_messages_shows_more_than_one() -> None:
    setting = setting_of("noise:0.05")
    one, mean = (play_one(name, setting, 6, seed=0) for name in ("tokens", "averaging"))
    assert mean.mean_score > one.mean_score + 0.2


def test_a_mean_of_masked_messages_shows_nothing() -> None:
    found = play_one("averaging", setting_of("masked"), 6, seed=0)
    assert found.attacked.successes == 0
    assert abs(found.mean_score - found.mean_control) < 0.15


def test_a_member_of_many_sums_stands_out() -> None:
    """Masks do not help a member that is in each of many sums, whose other members change."""
    found = play_one("averaging", setting_of("sum:8"), 6, seed=0)
    assert found.mean_score > found.mean_control + 0.2
