"""A setting: its rows, updates and calibration."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.attack_settings import setting_of

from barnraise.core.errors import InputError
from barnraise.privacy.attacks.setting import LocalTraining


def test_private_and_public_rows_are_apart() -> None:
    setting = setting_of()
    assert len(setting.private) == len(setting.public) == 200
    drawn = setting.draw(np.random.default_rng(0), members=8)
    assert len(drawn) == 8
    private = {row.tobytes() for row in setting.private}
    assert all(row.tobytes() in private for rows in drawn for row in rows)


def test_an_update_is_a_step_down_the_gradient() -> None:
    setting = setting_of()
    rows = setting.draw(np.random.default_rng(0))[0]
    update = setting.update(rows)
    module = setting.module()
    ids = torch.from_numpy(rows)
    loss = module(input_ids=ids, labels=ids, use_cache=False).loss
    gradients = torch.autograd.grad(loss, list(module.parameters()))
    expected = 0.1 * torch.cat([gradient.flatten() for gradient in gradients])
    torch.testing.assert_close(update, expected, atol=1e-6, rtol=1e-4)
    assert torch.equal(setting.update(rows), update)


def test_updates_of_several_steps_take_rows_in_turn() -> None:
    setting = setting_of(training=LocalTraining(steps=3, batch_size=2))
    rows = setting.draw(np.random.default_rng(0))[0]
    assert rows.shape == (6, setting.length)
    step = setting_of(training=LocalTraining(batch_size=2))
    at = step.start
    for first in (0, 2, 4):
        at = at - step.update(rows[first : first + 2], start=at)
    torch.testing.assert_close(setting.update(rows), setting.start - at, atol=1e-6, rtol=1e-4)


def test_the_bound_is_the_median_norm_of_public_updates() -> None:
    setting = setting_of("noise:0.1")
    norms = [float(setting.update(setting.draw_public(np.random.default_rng(seed))).norm()) for seed in range(9)]
    assert min(norms) < setting.protection.bound < max(norms)


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(InputError, match="give at least 404 rows"):
        setting_of(training=LocalTraining(batch_size=101))


def test_a_model_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnraise.privacy.attacks.setting.MOST_PARAMETERS", 1000)
    with pytest.raises(InputError, match="attack a smaller model"):
        setting_of()
