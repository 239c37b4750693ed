"""The property of a site's rows, by a classifier of shadow updates."""

from __future__ import annotations

import numpy as np
import torch
from tests.attack_settings import setting_of

from barnraise.privacy.attacks.inference.properties import Ridge, drawn, main_axis, sides
from barnraise.privacy.attacks.runner import play_one
from barnraise.privacy.attacks.setting import LocalTraining

TRAINING = LocalTraining(batch_size=8)


def test_an_update_shows_the_side_of_its_rows() -> None:
    found = play_one("property", setting_of(training=TRAINING), 30, seed=1)
    assert found.attacked.value > 0.8
    assert found.figures["auc"] > 0.85


def test_noise_hides_the_side() -> None:
    found = play_one("property", setting_of("noise:1", TRAINING), 30, seed=1)
    assert found.attacked.low < 0.6


def test_an_attack_repeats_to_the_bit() -> None:
    first, second = (play_one("property", setting_of(training=TRAINING), 8, seed=3) for _ in range(2))
    assert (first.attacked, first.control, first.figures) == (second.attacked, second.control, second.figures)


def test_the_main_axis_parts_two_topics() -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.integers(0, 10, (30, 8)), rng.integers(10, 20, (30, 8))])
    axis, middle = main_axis(rows, 20)
    low, high = sides(rows, axis, middle, 20)
    assert {len(low), len(high)} == {30}
    assert (low.max() < 10) != (high.max() < 10)


def test_each_side_has_a_row_even_if_all_rows_are_equal() -> None:
    rows = np.ones((4, 3), dtype=np.int64)
    axis, middle = main_axis(rows, 5)
    assert [len(side) for side in sides(rows, axis, middle, 5)] == [3, 1]


def test_a_site_has_most_rows_of_its_side() -> None:
    pair = (np.zeros((5, 2), dtype=np.int64), np.ones((5, 2), dtype=np.int64))
    share = drawn(pair, True, 1000, np.random.default_rng(0)).mean()
    assert 0.87 < share < 0.93


def test_the_dual_classifier_equals_the_primal_one() -> None:
    generator = torch.Generator().manual_seed(0)
    vectors, labels = torch.randn(10, 4, generator=generator), np.arange(10) % 2 == 0
    inputs = torch.nn.functional.normalize(vectors - vectors.mean(0), dim=1).double()
    signs = torch.from_numpy(np.where(labels, 1.0, -1.0))
    primal = torch.linalg.solve(inputs.T @ inputs + 0.1 * torch.eye(4, dtype=torch.float64), inputs.T @ signs)
    torch.testing.assert_close(Ridge(vectors, labels).weights.double(), primal, rtol=1e-4, atol=1e-4)
