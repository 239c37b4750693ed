"""Data sections with keys that exclude or need each other are refused before a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from barnraise.config import load
from barnraise.plan.data_files import dataset_bytes, file_problems


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a working directory with a file of chats."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.jsonl").write_text('{"prompt": "a", "completion": "b"}\n' * 100)
    return tmp_path


def errors(**keys: Any) -> list[str]:
    data = {"kind": "chat", "context": 64, **keys}
    run_file = load({"model": {"architecture": "gpt2"}, "data": data, "workers": [{"name": "a"}]})
    return [str(problem) for problem in file_problems(run_file)]


def source(**keys: Any) -> dict[str, Any]:
    return {"files": ["a.jsonl"], **keys}


@pytest.mark.parametrize(
    "keys",
    [
        source(),
        source(held_out={"share": 0.1, "by": "author"}),
        source(held_out={"field": "split", "values": ["test"]}),
        source(held_out={"files": ["a.jsonl"]}),
        {"mixture": [source(weight=1), source(weight=0.5)]},
        {"mixture": [source(epochs=2.5), source()]},
    ],
)
def test_sound_choices_have_no_problem(keys: dict[str, Any]) -> None:
    assert errors(**keys) == []


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "data.files: is missing; give a list of files, folders or patterns, or a data.mixture"),
        (source(mixture=[source()]), "data.files: is given beside data.mixture; move it into the mixture as a source"),
        (
            {"mixture": [source(weight=1), source()]},
            "data.mixture[1]: has no weight, but data.mixture[0] has one; give a weight to all sources, or to none",
        ),
        (
            {"mixture": [source(weight=1, epochs=2)]},
            "data.mixture[0]: has a weight and epochs; keep one: a weight tells the epochs",
        ),
        ({"mixture": [{"files": ["b.jsonl"]}]}, "data.mixture[0].files[0]: no file matches 'b.jsonl' in "),
        (source(held_out={"files": ["b.jsonl"]}), "data.held_out.files[0]: no file matches 'b.jsonl' in "),
        (source(held_out={}), "data.held_out: has no choice; give one of share, files or field"),
        (
            source(held_out={"share": 0.1, "files": ["a.jsonl"]}),
            "data.held_out: has share and files; give one of share, files or field",
        ),
        (
            source(held_out={"by": "author", "files": ["a.jsonl"]}),
            "data.held_out.by: counts only beside a share; give `share` too, or leave it out",
        ),
        (
            source(held_out={"field": "split"}),
            "data.held_out: needs both `field` and `values`, as in {field: split, values: [test]}",
        ),
    ],
)
def test_contradictions_are_named_with_their_remedy(keys: dict[str, Any], said: str) -> None:
    found = errors(**keys)
    assert found[0].startswith(said)


def test_the_masks_of_examples_count_as_bytes_of_the_dataset() -> None:
    """A token has two bytes, and two bits of masks beside them."""

    def size(kind: str) -> int:
        data = {"kind": kind, "context": 64, "files": ["a.jsonl"]}
        return dataset_bytes(load({"model": {"architecture": "gpt2"}, "data": data, "workers": [{"name": "a"}]}))

    assert size("instruct") == pytest.approx(size("text") * 2.25 / 2, rel=0.01)
