"""Token sets from the embedding, from the first query, and of a group from its sum."""

from __future__ import annotations

import pytest
import torch
from tests.attack_settings import setting_of

from barnraise.privacy.attacks.runner import AttackResult, play_one
from barnraise.privacy.attacks.setting import AttackSetting, LocalTraining
from barnraise.privacy.attacks.updates.tokens import chosen_by_gap, row_space


def score(setting: AttackSetting, name: str, trials: int = 6) -> AttackResult:
    return play_one(name, setting, trials, seed=1)


@pytest.mark.parametrize("tied", [True, False])
def test_tokens_show_in_the_embedding_whether_it_is_tied_or_not(tied: bool) -> None:
    assert score(setting_of(tie_word_embeddings=tied), "tokens").mean_score > 0.99


def test_tokens_show_in_the_first_query() -> None:
    found = score(setting_of(), "query_tokens")
    assert found.mean_score > 0.85
    assert found.mean_score > found.mean_control + 0.2


def test_noise_hides_tokens() -> None:
    assert score(setting_of("noise:1"), "tokens").attacked.successes == 0


def test_a_sum_hides_the_member_and_shows_the_union() -> None:
    setting = setting_of("sum:8", training=LocalTraining(batch_size=1))
    assert score(setting, "tokens").attacked.successes == 0
    assert score(setting, "union_tokens").mean_score > 0.98


def test_a_row_space_holds_the_rows_and_no_more() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(3, 16, generator=generator)
    basis = row_space(torch.randn(20, 3, generator=generator) @ inputs, positions=8)
    assert basis.shape == (3, 16)
    torch.testing.assert_close(inputs @ basis.T @ basis, inputs, atol=1e-4, rtol=1e-4)


def test_a_clear_gap_decides_over_the_expected_count() -> None:
    assert chosen_by_gap(torch.tensor([0.0, 9.0, 0.1, 9.1, 9.2, 0.2, 9.3, 9.4]), count=4) == {0, 2, 5}


def test_the_expected_count_decides_without_a_gap() -> None:
    assert len(chosen_by_gap(torch.arange(50.0), count=7)) == 7
