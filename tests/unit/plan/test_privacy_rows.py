"""Rows of the compatibility table about differential privacy: what is refused, and which remedy is given."""

from __future__ import annotations

from typing import Any

import pytest

from barnraise.config import load
from barnraise.core.errors import RunFileError
from barnraise.plan import resolve

BASE: dict[str, Any] = {
    "model": {"architecture": "gpt2", "config": {"hidden_size": 8, "num_layers": 1, "num_heads": 1}},
    "data": {"kind": "text", "files": ["a"]},
    "workers": [{"name": "a"}],
}
NOISE = {"profile": "noise", "clip": 0.5, "noise": 0.1}
EXAMPLE = {"profile": "example", "epsilon": 8, "delta": 1e-5, "noise": 1.0}


def refusal(section: dict[str, Any], **others: Any) -> str:
    with pytest.raises(RunFileError) as found:
        resolve(load(BASE | {"differential_privacy": section} | others))
    return str(found.value)


def test_a_run_with_noise_sends_no_residual_by_itself() -> None:
    exchange = {"compression": "topk"}
    plan = resolve(load(BASE | {"differential_privacy": NOISE, "exchange": exchange}))
    assert plan.last_compression is None
    assert resolve(load(BASE | {"exchange": exchange})).last_compression is not None
    assert any("is topk, with the profile noise" in str(warning) for warning in plan.warnings)


@pytest.mark.parametrize("key", ["epsilon", "delta"])
def test_a_budget_that_lacks_a_part_is_refused(key: str) -> None:
    given = {name: value for name, value in EXAMPLE.items() if name != key}
    assert f"has the profile example, but no {key}" in refusal(given)


def test_noise_on_updates_claims_no_epsilon() -> None:
    assert "epsilon: is 8, but the profile is noise" in refusal(NOISE | {"epsilon": 8})
    assert "is auto, but the profile noise has no budget" in refusal({"profile": "noise"})


@pytest.mark.parametrize(
    ("others", "text"),
    [
        ({"training": {"tasks": "stateless"}}, "training.tasks: is stateless"),
        ({"trust": {"audits": 0.1}}, "trust.audits: is 0.1"),
        ({"trust": {"scores": 0.1}}, "trust.scores: is 0.1"),
        ({"trust": {"loss_gate": 8}}, "trust.loss_gate: is 8"),
        ({"training": {"compile": "auto"}}, "training.compile: is auto"),
        ({"training": {"checkpoint_activations": True}}, "training.checkpoint_activations: is true"),
        ({"training": {"pace": "matched"}}, "training.pace: is matched"),
    ],
)
def test_a_choice_that_voids_the_bound_of_a_row_is_refused(others: dict[str, Any], text: str) -> None:
    assert text in refusal(EXAMPLE, **others)


def test_a_site_needs_rows_of_its_own() -> None:
    assert "is site, but data.kind is text" in refusal(EXAMPLE | {"profile": "site"})


SITES: dict[str, Any] = {
    "data": {"kind": "site", "releases": {"held_out": "off"}, "public_held_out": ["a"]},
    "workers": [{"name": name, "data": {"files": [name]}} for name in "abcd"],
    "training": {"compression": "none"},
    "aggregation": {"rule": "mean"},
}
SITE = {"profile": "site", "epsilon": 8, "delta": 1e-5, "noise": 8.0, "uses": 10}
MASKS = {"trustees": 4, "colluding": 1, "least": 3}


def shared(honest: int, masks: dict[str, Any] | None, **others: Any) -> dict[str, Any]:
    privacy = {"differential_privacy": SITE | {"honest": honest}, "overhead_limit": 1000.0}
    return BASE | SITES | {"privacy": privacy | ({"secure_aggregation": masks} if masks else {})} | others


def test_sites_may_share_the_noise_of_masked_sums() -> None:
    plan = resolve(load(shared(3, MASKS)))
    assert plan.masking is not None
    assert plan.masking.deviation == pytest.approx(8.0 / 3**0.5 * plan.run_file.privacy.differential_privacy.clip)
    assert plan.budget is not None
    assert "3 honest members of each sum share" in str(plan.budget)


@pytest.mark.parametrize(
    ("honest", "masks", "text"),
    [
        (3, None, "honest: is 3, but updates are not masked"),
        (4, MASKS, "honest: is 4, but groups may have 3 members"),
        (3, MASKS | {"limit": 0.1}, "but the clip and the noise of a sum need"),
        (3, MASKS | {"value_bits": 4}, "raise value_bits"),
    ],
)
def test_shared_noise_that_would_not_hide_an_update_is_refused(
    honest: int, masks: dict[str, Any] | None, text: str
) -> None:
    with pytest.raises(RunFileError, match="privacy") as found:
        resolve(load(shared(honest, masks)))
    assert text in str(found.value)


def test_rows_have_no_noise_that_members_share() -> None:
    assert "honest: is 3, with the profile example" in refusal(EXAMPLE | {"honest": 3})


def test_a_site_with_a_budget_tells_no_loss_on_its_held_out_rows() -> None:
    data = SITES["data"] | {"releases": {"held_out": "mean"}}
    with pytest.raises(RunFileError) as found:
        resolve(load(shared(3, MASKS, data=data)))
    assert "held_out: is mean, with the profile site" in str(found.value)
