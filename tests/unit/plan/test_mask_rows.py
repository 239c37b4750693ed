"""Rows of the compatibility table about masked updates: whose machines hold the seeds."""

from __future__ import annotations

from typing import Any

import pytest

from barnraise.config import load
from barnraise.core.errors import RunFileError
from barnraise.plan import resolve
from barnraise.plan.estimate import estimate
from barnraise.plan.purpose import SERVE, TRAIN, Purpose

MASKED: dict[str, Any] = {
    "model": {"architecture": "gpt2", "config": {"hidden_size": 8, "num_layers": 1, "num_heads": 1}},
    "data": {"kind": "text", "files": ["a"]},
    "training": {"compression": "none"},
    "privacy": {"secure_aggregation": {"trustees": 4}},
}


def warnings(purpose: Purpose, content: dict[str, Any]) -> list[str]:
    return [str(warning) for warning in resolve(load(content), purpose=purpose).warnings]


def test_trustees_that_train_starts_on_the_host_s_machine_are_warned_of() -> None:
    workers = {"workers": [{"name": "a"}, {"name": "b"}]}
    (told,) = [text for text in warnings(TRAIN, MASKED | workers) if "secure_aggregation.trustees" in text]
    assert "is 4, and this machine has them all" in told
    assert "barnraise serve" in told
    assert not [text for text in warnings(SERVE, MASKED) if "secure_aggregation.trustees" in text]
    plain = {key: value for key, value in MASKED.items() if key != "privacy"} | workers
    assert not [text for text in warnings(TRAIN, plain) if "secure_aggregation" in text]


def test_a_version_has_as_many_nodes_as_the_masks_need() -> None:
    content = MASKED | {"workers": [{"name": name} for name in "abcd"]}
    content["data"] = {"kind": "sat", "variables": [3, 3], "clause_lengths": [1, 3], "context": 48}
    content["privacy"] = {"secure_aggregation": {"trustees": 4, "least": 3}}
    assert estimate(resolve(load(content), purpose=TRAIN)).buffer_size == 3


def test_a_sum_of_more_nodes_than_there_are_workers_is_refused() -> None:
    content = MASKED | {"workers": [{"name": "a"}, {"name": "b"}]}
    content["privacy"] = {"secure_aggregation": {"trustees": 4, "least": 3}}
    with pytest.raises(RunFileError, match=r"a sum is of 3 nodes or more, but the run has 2; lower"):
        resolve(load(content), purpose=TRAIN)
    resolve(load(content | {"workers": []}), purpose=SERVE)
