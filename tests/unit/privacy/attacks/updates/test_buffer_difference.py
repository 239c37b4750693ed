"""Differences of the sums of overlapping lists."""

from __future__ import annotations

import pytest
from tests.attack_settings import setting_of

from barnraise.privacy.attacks.runner import play_one


@pytest.mark.parametrize("protection", ["none", "any_sum:8"])
def test_two_overlapping_sums_reveal_a_member(protection: str) -> None:
    assert play_one("buffer_difference", setting_of(protection), 6, seed=0).attacked.successes >= 5


@pytest.mark.parametrize("protection", ["sum:8", "masked"])
def test_one_list_alone_reveals_no_member(protection: str) -> None:
    found = play_one("buffer_difference", setting_of(protection), 6, seed=0)
    assert found.attacked.successes == 0
