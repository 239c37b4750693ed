"""Combinations that a run whose rows stay with their owners must not have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnraise.config import load
from barnraise.core.errors import RunFileError
from barnraise.plan import Purpose, resolve

PUBLIC = {"public_held_out": ["*.txt"]}


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some.txt").write_text("some text of the host's own\n" * 100)


def run_file(data: dict[str, Any], **sections: Any) -> dict[str, Any]:
    return {
        "model": {"architecture": "gpt2", "config": {"hidden_size": 8, "num_layers": 1, "num_heads": 1}},
        "data": {"kind": "site", "context": 8} | data,
        "training": {"tokens": 100_000},
        **sections,
    }


def test_a_run_of_sites_with_public_rows_is_fine_and_warned_of() -> None:
    plan = resolve(load(run_file(PUBLIC)), purpose=Purpose.SERVE)
    assert any("barnraise verify" in str(warning) or "data.kind" in str(warning) for warning in plan.warnings)
    assert plan.run_file.trust.loss_gate in (None, 0), "no gate is chosen without rows"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"trust": {"audits": 0.1}}, "trust.audits"),
        ({"trust": {"scores": 0.1}}, "trust.scores"),
        ({"trust": {"loss_gate": 8}}, "trust.loss_gate"),
        ({"evaluation": {"by": "workers"}}, "evaluation.by"),
    ],
)
def test_a_check_that_needs_rows_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(RunFileError, match=said):
        resolve(load(run_file(PUBLIC, **changes)), purpose=Purpose.SERVE)


def test_a_run_needs_rows_or_sites_to_measure_with() -> None:
    with pytest.raises(RunFileError, match="public_held_out"):
        resolve(load(run_file({})), purpose=Purpose.SERVE)
    silent = {"releases": {"held_out": "off"}}
    with pytest.raises(RunFileError, match=r"releases\.held_out"):
        resolve(load(run_file(silent, evaluation={"by": "sites"})), purpose=Purpose.SERVE)
    resolve(load(run_file({}, evaluation={"by": "sites"})), purpose=Purpose.SERVE)


def test_metrics_need_rows_of_the_host() -> None:
    section = {"by": "sites", "metrics": ["perplexity"]}
    with pytest.raises(RunFileError, match=r"evaluation\.metrics"):
        resolve(load(run_file({}, evaluation=section)), purpose=Purpose.SERVE)


def test_local_workers_need_files_and_only_there() -> None:
    with pytest.raises(RunFileError, match="workers"):
        resolve(load(run_file(PUBLIC, workers=[{"name": "a"}])), purpose=Purpose.TRAIN)
    workers = [{"name": "a", "data": {"files": ["*.txt"]}}]
    resolve(load(run_file(PUBLIC, workers=workers)), purpose=Purpose.TRAIN)
    text = {"kind": "text", "files": ["*.txt"], "context": 8}
    with pytest.raises(RunFileError, match=r"data\.kind is not site"):
        resolve(load(run_file({}, workers=workers) | {"data": text}), purpose=Purpose.TRAIN)
    with pytest.raises(RunFileError, match=r"evaluation\.by"):
        resolve(load(run_file({}, evaluation={"by": "sites"}) | {"data": text}), purpose=Purpose.SERVE)


def test_sites_are_not_simulated() -> None:
    with pytest.raises(RunFileError, match=r"data\.kind"):
        resolve(load(run_file(PUBLIC, workers=[{"name": "a"}])), purpose=Purpose.SIMULATE)
