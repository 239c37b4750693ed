"""Membership in the rows of a model, by likelihood ratios and by a threshold of the loss."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.attack_settings import setting_of

from barnraise.privacy.attacks.inference import membership
from barnraise.privacy.attacks.inference.membership import RowMembership, losses
from barnraise.privacy.attacks.runner import AttackResult, play_one
from barnraise.privacy.attacks.setting import LocalTraining

TRAINING = LocalTraining("adamw", {"weight_decay": 0.01}, 5e-3, 1, 4)


@pytest.fixture(autouse=True)
def few_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train fewer models than an attack does."""
    for name, count in (("SHADOWS", 4), ("VICTIMS", 2), ("TARGETS", 16)):
        monkeypatch.setattr(membership, name, count)


def played(name: str, protection: str = "none") -> AttackResult:
    return play_one(name, setting_of(protection, TRAINING), 30, seed=2)


def test_a_likelihood_ratio_finds_members_of_an_unprotected_model() -> None:
    found = played("membership")
    assert found.attacked.value > 0.75
    assert found.figures["auc"] > 0.85


def test_offline_ratios_do_without_models_of_the_target() -> None:
    assert played("membership_offline").figures["auc"] > 0.75


def test_noise_hides_members() -> None:
    assert abs(played("membership", "noise:1").figures["auc"] - 0.5) < 0.35


def test_an_attack_repeats_to_the_bit() -> None:
    first, second = played("membership_loss"), played("membership_loss")
    assert (first.attacked, first.figures) == (second.attacked, second.figures)


def test_losses_are_those_of_the_training() -> None:
    setting = setting_of()
    rows = setting.private[:2]
    tokens = torch.from_numpy(np.asarray(rows))
    expected = setting.module().eval()(input_ids=tokens, labels=tokens).loss
    assert losses(setting, setting.start, rows).mean() == pytest.approx(float(expected.detach()), rel=1e-5)


def test_a_model_without_finite_losses_tells_nothing() -> None:
    setting = setting_of()
    found = losses(setting, torch.full_like(setting.start, torch.nan), setting.private[:3])
    assert found.tolist() == [membership.MOST_LOSS] * 3


def test_members_and_others_are_trained_on_in_equal_numbers() -> None:
    attack, setting = RowMembership(), setting_of(training=TRAINING)
    attack.prepare(setting, np.random.default_rng(0))
    assert attack.member.sum(1).tolist() == [1] * 16
