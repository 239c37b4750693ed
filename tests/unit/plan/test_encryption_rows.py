"""Rows of the compatibility table about encrypted updates: what is refused, and which remedy is given."""

from __future__ import annotations

from typing import Any

import pytest

from barnraise.config import load
from barnraise.core.errors import RunFileError
from barnraise.plan import Plan, Purpose, resolve

SECTION = {"key": "club/" + "0a" * 16, "nodes": 2}
B_ONLY = {"adapter": {"kind": "lora", "rank": 2, "train": "b_only"}}
BASE: dict[str, Any] = {
    "model": {"architecture": "gpt2", "config": {"hidden_size": 8, "num_layers": 1, "num_heads": 1}},
    "data": {"kind": "text", "files": ["a"], "context": 8},
    "training": B_ONLY,
    "evaluation": {"by": "workers"},
    "privacy": {"homomorphic_encryption": SECTION},
}
LOCAL = {"workers": [{"name": "a"}, {"name": "b"}]}


def plan(purpose: Purpose = Purpose.SERVE, **others: Any) -> Plan:
    return resolve(load(BASE | others), purpose=purpose)


def test_a_served_run_of_b_only_adapters_is_sound_and_takes_the_mean() -> None:
    found = plan()
    assert found.aggregation.names == ("mean",)
    assert found.rule_text.endswith("(auto, since encrypted updates can be summed alone)")
    assert any("homomorphic_encryption: is given, but data.kind is text" in str(each) for each in found.warnings)


def test_a_club_of_sites_measures_the_loss_itself() -> None:
    data = {"kind": "site", "context": 8, "tokenizer": "bytes"}
    found = plan(data=data, evaluation={"by": "sites"})
    assert found.encryption is not None
    assert not [str(warning) for warning in found.warnings if "encrypt" in str(warning)]


def test_a_simulation_is_sound_and_in_clear() -> None:
    found = plan(Purpose.SIMULATE, **LOCAL)
    assert found.encryption is None
    assert any("this is a simulation" in str(warning) for warning in found.warnings)


@pytest.mark.parametrize(
    ("others", "text"),
    [
        ({"training": {}}, "training.adapter: is not given, but updates are encrypted; set training.adapter:"),
        ({"training": {"adapter": {"kind": "lora"}}}, "training.adapter: has train: both"),
        ({"training": B_ONLY | {"tasks": "stateless"}}, "training.tasks: is stateless, but updates are encrypted"),
        ({"training": B_ONLY | {"version_momentum": 0.5}}, "training.version_momentum: is 0.5"),
        ({"exchange": {"compression": "int8"}}, "exchange.compression: is int8, but updates are encrypted; set it"),
        ({"exchange": {"downlink_compression": "int8"}}, "exchange.downlink_compression: is int8"),
        ({"exchange": {"fragments": 2}}, "exchange.fragments: is 2, but updates are encrypted"),
        ({"aggregation": {"rule": "median"}}, "aggregation.rule: median reads updates, but they are encrypted"),
        ({"aggregation": {"outer_optimizer": "adam"}}, "aggregation.outer_optimizer: is adam, but updates are encr"),
        ({"trust": {"scores": 0.1}}, "trust.scores: is 0.1, but updates are encrypted"),
        ({"trust": {"audits": 0.1}}, "trust.audits: is 0.1, but updates are encrypted"),
        ({"trust": {"loss_gate": 8}}, "trust.loss_gate: is 8, but updates are encrypted"),
        ({"trust": {"max_update_norm": 1.0}}, "trust.max_update_norm: is 1, but updates are encrypted"),
        ({"evaluation": {"by": "controller"}}, "evaluation.by: is controller, but versions are encrypted; set"),
        ({"evaluation": {"by": "workers", "average": 0.1}}, "evaluation.average: is 0.1, but versions are encrypted"),
        ({"evaluation": {"by": "workers", "metrics": ["exact_match"]}}, "evaluation.metrics: or prompts are given"),
        (
            {"privacy": {"homomorphic_encryption": SECTION, "secure_aggregation": {}}},
            "privacy.homomorphic_encryption: is given beside privacy.secure_aggregation",
        ),
        (
            {"privacy": {"homomorphic_encryption": SECTION | {"key_file": "club.key"}}},
            "key_file: is club.key, but this machine hosts the run; leave it out, and give it to workers",
        ),
        ({"privacy": {"homomorphic_encryption": {"key": SECTION["key"]}}}, "set nodes to how many workers you expect"),
    ],
)
def test_a_choice_that_needs_readable_updates_is_refused(others: dict[str, Any], text: str) -> None:
    with pytest.raises(RunFileError) as found:
        plan(**others)
    assert text in str(found.value)


def test_local_workers_need_a_key_file_and_a_lab_has_none() -> None:
    with pytest.raises(RunFileError, match="key_file: is not given, but workers of this machine train"):
        plan(Purpose.TRAIN, **LOCAL)
    with pytest.raises(RunFileError, match="homomorphic_encryption: is given, and this is a lab"):
        plan(Purpose.LAB, **LOCAL)


def test_a_key_is_named_as_its_command_prints_it() -> None:
    with pytest.raises(RunFileError, match=r"privacy\.homomorphic_encryption\.key"):
        plan(privacy={"homomorphic_encryption": {"key": "club"}})
