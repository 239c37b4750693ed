"""Checks of what a run trains, before anything is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.problems import Line

from barnraise.config.document import parse
from barnraise.core.errors import RunFileError
from barnraise.models.problems import CATALOG, FILES, register
from barnraise.plan.purpose import SERVE
from barnraise.plan.verify import verify


@pytest.fixture(autouse=True)
def _line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CATALOG, "entries", dict(CATALOG.entries))
    monkeypatch.setenv(FILES, "")
    register(Line)


def check(folder: Path, model: dict[str, Any], data: dict[str, Any], **sections: Any) -> Any:
    (folder / "text.txt").write_text("a barn is raised by many hands.\n" * 100)
    content = {"model": model, "data": data, "run": {"dir": str(folder)}} | sections
    return verify(parse(json.dumps(content).encode(), "run.yaml"), purpose=SERVE)


def text(folder: Path) -> dict[str, Any]:
    return {"kind": "text", "files": [str(folder / "text.txt")], "context": 32}


def test_a_problem_of_a_file_is_estimated(tmp_path: Path) -> None:
    _, estimate = check(tmp_path, {"problem": "line"}, {"kind": "rows"})
    assert (estimate.sizes.parameters, estimate.sizes.snapshot_bytes) == (4, 16)


SMALL = {"hidden_size": 16, "num_layers": 1, "num_heads": 2}


def test_a_masked_model_is_trained_on_text(tmp_path: Path) -> None:
    plan, estimate = check(tmp_path, {"architecture": "bert", "config": SMALL}, text(tmp_path))
    assert estimate.sizes.parameters > 0
    assert not any("next token" in str(warning) for warning in plan.warnings)


def test_a_run_whose_rows_do_not_fit_its_problem_is_refused(tmp_path: Path) -> None:
    small = {"d_model": 16, "num_layers": 1, "num_heads": 2, "d_kv": 8, "d_ff": 32}
    t5 = {"architecture": "t5", "config": small}
    (tmp_path / "pairs.jsonl").write_text('{"prompt": "one", "completion": "two"}\n' * 200)
    pairs = {"kind": "instruct", "files": [str(tmp_path / "pairs.jsonl")], "context": 16}
    cases: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        (
            {"problem": "lines"},
            {"kind": "rows"},
            "unknown problem 'lines'.*; install its package, or name its file",
        ),
        ({"problem": "line", "problem_options": {"slop": 1}}, {"kind": "rows"}, "did you mean 'slope'"),
        ({"problem": "line"}, text(tmp_path), "the problem 'line' makes its own rows; set kind to rows"),
        (
            {"problem": "masked_lm", "architecture": "bert"},
            {"kind": "rows"},
            "no problem of a package or file",
        ),
        ({"problem": "line", "architecture": "gpt2"}, {"kind": "rows"}, "the model section has architecture"),
        (t5, text(tmp_path), "which needs pairs of a source and a target"),
        (
            {"architecture": "t5", "config": small},
            pairs | {"train_on": "all"},
            "learns the targets alone; leave it out",
        ),
        (t5, pairs | {"kind": "chat"}, "set data.kind: instruct for prompts"),
    ]
    for model, data, said in cases:
        with pytest.raises(RunFileError, match=said):
            check(tmp_path, model, data)
    plan, _ = check(tmp_path, t5, pairs)
    assert not any("problem" in str(warning) for warning in plan.warnings)
    with pytest.raises(RunFileError, match="only a causal_lm answers, and the problem of this model is seq2seq"):
        check(tmp_path, t5, pairs, evaluation={"metrics": ["exact_match"]})
