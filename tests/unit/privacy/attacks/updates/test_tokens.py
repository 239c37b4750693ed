"""Token sets from the embedding, from the first query, and of a group from its sum."""

from __future__ import annotations

import pytest
import torch
from tests.attack_settings import setting_of

from barnraise.core.errors import InputError
from barnraise.privacy.attacks.runner import AttackResult, play_one
from barnraise.privacy.attacks.setting import AttackSetting, LocalTraining
from barnraise.privacy.attacks.updates.tokens import row_space, unexplained


def score(setting: AttackSetting, name: str, trials: int = 6) -> AttackResult:
    return play_one(name, setting, trials, seed=1)


@pytest.mark.parametrize("tied", [True, False])
def test_tokens_show_in_the_embedding_whether_it_is_tied_or_not(tied: bool) -> None:
    assert score(setting_of(tie_word_embeddings=tied), "tokens").mean_score > 0.99


@pytest.mark.parametrize("tied", [True, False])
def test_tokens_show_after_several_steps_of_adamw(tied: bool) -> None:
    training = LocalTraining("adamw", {"weight_decay": 0.1}, 1e-3, steps=4)
    assert score(setting_of(training=training, tie_word_embeddings=tied), "tokens").mean_score > 0.9


def test_tokens_show_in_the_first_query() -> None:
    found = score(setting_of(), "query_tokens")
    assert found.mean_score > 0.85
    assert found.mean_score > found.mean_control + 0.2


@pytest.mark.parametrize("protection", ["masked", "noise:1"])
@pytest.mark.parametrize("name", ["tokens", "query_tokens"])
def test_a_hidden_update_leaves_the_prior_alone(name: str, protection: str) -> None:
    found = score(setting_of(protection), name, trials=12)
    assert found.attacked.successes == 0
    assert abs(found.mean_score - found.mean_control) < 0.12


def test_a_sum_hides_the_member_and_shows_the_union() -> None:
    setting = setting_of("sum:8", training=LocalTraining(batch_size=1))
    assert score(setting, "tokens").attacked.successes == 0
    assert score(setting, "union_tokens").mean_score > 0.98


def test_a_vocabulary_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnraise.privacy.attacks.updates.tokens.MOST_INPUTS", 1000)
    with pytest.raises(InputError, match="smaller vocabulary or shorter rows"):
        score(setting_of(), "query_tokens")


def test_a_row_space_holds_the_rows_and_no_more() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(3, 16, generator=generator)
    basis = row_space(torch.randn(20, 3, generator=generator) @ inputs, positions=8)
    assert basis.shape == (3, 16)
    torch.testing.assert_close(inputs @ basis.T @ basis, inputs, atol=1e-4, rtol=1e-4)


def test_a_regression_leaves_the_rows_that_moved_otherwise() -> None:
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(200, 8, generator=generator)
    moved = 0.5 * start + 3.0 + start @ torch.randn(8, 8, generator=generator)
    moved[[3, 70]] += torch.randn(2, 8, generator=generator)
    left = unexplained(moved, start)
    assert set(left.topk(2).indices.tolist()) == {3, 70}
    assert float(left.sort().values[-3]) < 1e-3
