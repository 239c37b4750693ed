"""The terms of encrypted updates: how many a run may have, and the share of each."""

from __future__ import annotations

from typing import Any

import pytest

from barnraise.config import load
from barnraise.core.errors import InputError
from barnraise.plan.encryption import FEWEST_UPDATES, EncryptionTerms, encryption_of

KEY = "club/" + "0a" * 16


def terms(section: dict[str, Any] | None = None, **others: Any) -> EncryptionTerms | None:
    content = {
        "model": {"architecture": "gpt2", "config": {"hidden_size": 8, "num_layers": 1, "num_heads": 1}},
        "data": {"kind": "text", "files": ["a"], "context": 8},
        "training": {"tokens": 10_000, "batch_size": 1},
    }
    privacy = {"homomorphic_encryption": {"key": KEY} | section} if section is not None else {}
    return encryption_of(load(content | {"privacy": privacy} | others))


def found(section: dict[str, Any], **others: Any) -> EncryptionTerms:
    result = terms(section, **others)
    assert result is not None
    return result


def test_a_run_in_clear_has_no_terms() -> None:
    assert terms() is None


def test_the_share_of_an_update_is_given_or_follows_from_the_fleet() -> None:
    local = {"workers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}
    assert found({}, **local).nodes == 3
    assert found({}, **local, aggregation={"buffer_size": 2}).nodes == 2
    assert found({"nodes": 5}, **local).nodes == 5
    with pytest.raises(InputError, match="set nodes to how many workers you expect"):
        terms({})


def test_the_budget_has_room_for_twice_the_updates_of_one_step() -> None:
    assert found({"nodes": 1}).updates == FEWEST_UPDATES
    longer = found({"nodes": 1}, training={"tokens": 100_000, "batch_size": 1})
    assert longer.updates == 32_768  # twice 12,500, as a power of two
    assert longer.agreement(1000).budget.parties == 32_768


def test_more_updates_than_a_sum_holds_are_refused_with_both_remedies() -> None:
    with pytest.raises(InputError, match=r"holds 1,048,576; raise training\.batch_size, or train on fewer"):
        terms({"nodes": 1}, training={"tokens": 10_000_000, "batch_size": 1})
