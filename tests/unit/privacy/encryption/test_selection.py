"""The choice of encrypted parameters: tensors that tell tokens first, then the most sensitive, up to the share."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnraise.core.errors import InputError
from barnraise.core.ranges import fault, pieces, size
from barnraise.models.exchange.layout import Layout
from barnraise.privacy.encryption.selection import GRAIN, choose, sensitivities, share_of, tells_tokens

LAYOUT = Layout.of(
    [
        ("transformer.wte.weight", (50, 8)),
        ("transformer.wpe.weight", (16, 8)),
        ("transformer.h.0.attn.c_attn.weight", (8, 24)),
        ("transformer.h.0.mlp.c_fc.weight", (8, 320)),
        ("transformer.h.1.attn.c_attn.weight", (8, 240)),
    ]
)


def zeros() -> np.ndarray:
    return np.zeros(LAYOUT.size)


@pytest.mark.parametrize(
    ("name", "tells"),
    [
        ("model.embed_tokens.weight", True),
        ("lm_head.weight", True),
        ("model.layers.0.self_attn.q_proj.weight", True),
        ("base_model.model.model.layers.0.self_attn.v_proj.lora_B.default.weight", True),
        ("model.layers.10.self_attn.q_proj.weight", False),
        ("model.layers.0.mlp.up_proj.weight", False),
        ("transformer.wpe.weight", False),
    ],
)
def test_a_name_tells_whether_its_gradient_tells_tokens(name: str, tells: bool) -> None:
    assert tells_tokens(name) is tells


def test_a_choice_has_embeddings_and_first_queries_whatever_the_map_says() -> None:
    chosen = choose(LAYOUT, zeros(), 0.12)
    covered = {at for start, stop in pieces(chosen) for at in range(start, stop)}
    assert set(range(400)) | set(range(528, 720)) <= covered
    assert size(chosen) == int(0.12 * LAYOUT.size)


def test_the_most_sensitive_run_follows() -> None:
    measured = zeros()
    measured[3072 : 3072 + GRAIN] = 1.0
    chosen = choose(LAYOUT, measured, (592 + GRAIN) / LAYOUT.size)
    assert pieces(chosen)[-1] == (3072, 3072 + GRAIN)
    assert share_of(chosen, LAYOUT) == (592 + GRAIN) / LAYOUT.size


@given(share=st.floats(0.12, 1.0), seed=st.integers(0, 1000))
def test_a_choice_fills_its_share_and_is_the_same_each_time(share: float, seed: int) -> None:
    measured = np.random.default_rng(seed).random(LAYOUT.size)
    chosen = choose(LAYOUT, measured, share)
    assert fault(chosen, LAYOUT.size) == ""
    assert share * LAYOUT.size - 1 < size(chosen) <= share * LAYOUT.size + 1e-6
    assert choose(LAYOUT, measured.copy(), share) == chosen


def test_a_share_that_cannot_hold_what_tells_tokens_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"have 592 of 5200 values \(11\.4%\), but the share is 5\.0%; raise it to 0\.115"
    ):
        choose(LAYOUT, zeros(), 0.05)


@pytest.mark.parametrize("share", [0.0, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(InputError, match="must be above 0 and at most 1"):
        choose(LAYOUT, zeros(), share)


def test_a_map_of_another_model_is_refused() -> None:
    with pytest.raises(InputError, match="a map of 3 sensitivities for 5200 values"):
        choose(LAYOUT, np.zeros(3), 0.5)


def test_sensitivity_is_the_mean_change_between_batches() -> None:
    first, second = np.array([1.0, 2.0]), np.array([3.0, 2.0])
    assert sensitivities([(first, second), (first, first)]).tolist() == [1.0, 0.0]


def test_a_map_of_no_batches_and_one_of_no_numbers_are_refused() -> None:
    with pytest.raises(InputError, match="at least one pair"):
        sensitivities([])
    with pytest.raises(InputError, match="infinite or no number"):
        sensitivities([(np.array([np.nan]), np.array([0.0]))])
