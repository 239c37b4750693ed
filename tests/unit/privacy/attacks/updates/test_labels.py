"""Counts of labels from the output layer."""

from __future__ import annotations

import numpy as np
import pytest
from tests.attack_settings import setting_of

from barnraise.privacy.attacks.runner import play_one
from barnraise.privacy.attacks.updates.labels import apportioned, overlap


def test_labels_are_counted_from_plain_updates() -> None:
    found = play_one("labels", setting_of(), 6, seed=0)
    assert found.mean_score > 0.85
    assert found.mean_score > found.mean_control + 0.3


def test_a_masked_update_shows_no_labels() -> None:
    found = play_one("labels", setting_of("masked"), 6, seed=0)
    assert found.attacked.successes == 0


def test_counts_add_up_to_the_total_even_without_a_share() -> None:
    assert apportioned(np.array([0.4, 0.35, 0.25]), 10).sum() == 10
    assert overlap(apportioned(np.zeros(3), 3), np.array([1, 1, 1])) == pytest.approx(1.0)


def test_an_overlap_counts_repeated_labels() -> None:
    assert overlap(np.array([2.0, 0.0, 1.0]), np.array([1, 1, 1])) == pytest.approx(2 / 3)
