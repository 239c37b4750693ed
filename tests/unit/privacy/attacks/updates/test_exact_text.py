"""Exact text from the spans of attentions' gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.attack_settings import setting_of

from barnraise.privacy.attacks.runner import play_one
from barnraise.privacy.attacks.setting import LocalTraining
from barnraise.privacy.attacks.updates.exact_text import ExactText, distance


def test_rows_are_recovered_exactly_but_for_their_last_token() -> None:
    setting = setting_of(training=LocalTraining(batch_size=2))
    attack, rng = ExactText(), np.random.default_rng(4)
    attack.prepare(setting, rng)
    (rows,), seen = setting.group(rng)
    found = attack.reconstruct(setting, seen, rng)
    assert {tuple(row[:-1]) for row in found} == {tuple(row[:-1]) for row in rows}


@pytest.mark.parametrize("protection", ["masked", "noise:0.1"])
def test_a_hidden_update_gives_no_text(protection: str) -> None:
    found = play_one("exact_text", setting_of(protection), 4, seed=0)
    assert found.attacked.successes == 0
    assert found.mean_score < 0.3


def test_a_distance_is_the_share_outside_the_span() -> None:
    basis = torch.tensor([[1.0, 0.0, 0.0]])
    inputs = torch.tensor([[2.0, 0.0, 0.0], [0.0, 3.0, 0.0], [3.0, 4.0, 0.0]])
    torch.testing.assert_close(distance(inputs, basis), torch.tensor([0.0, 1.0, 0.8]))
