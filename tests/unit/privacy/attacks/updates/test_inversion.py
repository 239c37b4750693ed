"""Text by gradient matching."""

from __future__ import annotations

import torch
from tests.attack_settings import setting_of

from barnraise.privacy.attacks.runner import play_one
from barnraise.privacy.attacks.updates.inversion import mismatch, soft_loss


def test_text_is_found_in_plain_updates() -> None:
    found = play_one("inversion", setting_of(), 2, seed=0)
    assert found.mean_score > 0.5
    assert found.mean_score > found.mean_control + 0.2


def test_the_loss_of_certain_tokens_is_the_models_own() -> None:
    setting = setting_of()
    ids, module = torch.from_numpy(setting.private[:2]), setting.module()
    candidates = torch.arange(setting.vocab_size)
    mixture = torch.nn.functional.one_hot(ids, setting.vocab_size).float()
    found = soft_loss(module, mixture, module.get_input_embeddings().weight, candidates)
    torch.testing.assert_close(found, module(input_ids=ids, labels=ids, use_cache=False).loss)


def test_parallel_gradients_match() -> None:
    one, other = torch.tensor([1.0, 2.0]), torch.tensor([2.0, -1.0])
    assert float(mismatch((one, one), [3 * one, other])) == 1.0
