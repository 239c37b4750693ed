"""Text by optimisation towards the gradients' subspaces."""

from __future__ import annotations

import torch
from tests.attack_settings import setting_of

from barnraise.privacy.attacks.runner import play_one
from barnraise.privacy.attacks.updates.subspace import weighted_space


def test_text_is_found_in_plain_updates() -> None:
    found = play_one("subspace", setting_of(), 4, seed=0)
    assert found.mean_score > 0.6
    assert found.mean_score > found.mean_control + 0.3


def test_a_masked_update_gives_no_text() -> None:
    found = play_one("subspace", setting_of("masked"), 4, seed=0)
    assert found.attacked.successes == 0
    assert found.mean_score < 0.4


def test_directions_of_noise_count_little() -> None:
    generator = torch.Generator().manual_seed(0)
    signal = torch.zeros(200, 16)
    signal[:, :2] = torch.randn(200, 2, generator=generator) * 10
    lengths = torch.linalg.vector_norm(weighted_space(signal + torch.randn(200, 16, generator=generator), 8), dim=1)
    assert float(lengths[:2].min()) > 0.95
    assert float(lengths[2:].max()) < 0.8
