"""`barnraise attack privacy`: its table, its JSON, and the refusals of bad input; `attack FILE` stays a matrix."""

from __future__ import annotations

import json
import random
import string
from pathlib import Path

import pytest

from barnraise.cli import main

RUN = """
run: {name: tiny}
model: {architecture: gpt2, config: {hidden_size: 48, num_layers: 2, num_heads: 2}}
data: {kind: text, files: [story.txt], context: 32}
workers: [{name: a}, {name: b}]
training: {tokens: 100_000, batch_size: 1, local_steps: 1}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a working directory with a run file and its data."""
    monkeypatch.chdir(tmp_path)
    letters = random.Random(0).choices(string.ascii_letters + string.digits, k=8000)
    (tmp_path / "story.txt").write_text("".join(letters))
    (tmp_path / "run.yaml").write_text(RUN)
    return tmp_path


def run(*arguments: str) -> int:
    """Return the exit code of the command line in this process."""
    try:
        return main.main(list(arguments))
    except SystemExit as exit:
        return int(exit.code or 0)


def test_the_table_has_each_attack_under_each_protection(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--trials", "3", "--attacks", "tokens,query_tokens", "--protections", "none,masked", "--out", "t.md"]
    assert run("attack", "privacy", "run.yaml", *arguments) == 0
    out, err = capsys.readouterr()
    rows = [line.split(" | ") for line in out.splitlines() if line.startswith("| ")][1:]
    assert [(row[0].strip("| "), row[1]) for row in rows] == [
        ("tokens", "none"),
        ("query_tokens", "none"),
        ("tokens", "masked"),
        ("query_tokens", "masked"),
    ]
    assert rows[2][2:4] == ["0 of 3", "0.0% to 70.8%"]
    assert "1 local steps of adamw on 1 rows of 16 tokens" in err
    assert (folder / "t.md").read_text().strip() == out.strip()


def test_the_runs_own_codec_is_among_the_usual_protections(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("attack", "privacy", "run.yaml", "--trials", "1", "--attacks", "tokens", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["results"][-1]["protection"].startswith("run's codec: ")
    assert {result["attack"] for result in found["results"]} == {"tokens"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nope.yaml"], "nope.yaml does not exist"),
        (["run.yaml", "--attacks", "toke"], "did you mean 'tokens'"),
        (["run.yaml", "--protections", "nois:1"], "did you mean 'noise'"),
        (["run.yaml", "--protections", "noise:-1"], "multiplier"),
        (["run.yaml", "--trials", "0"], "greater than or equal to 1"),
        (["run.yaml", "--out", "no/such/t.md"], "is no folder"),
        (["."], "run"),
    ],
)
def test_bad_input_is_refused_without_a_trial(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("attack", "privacy", *arguments) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err


def test_a_run_with_adapters_is_refused_with_the_remedy(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "run.yaml").write_text(RUN.replace("batch_size: 1", "batch_size: 1, adapter: {rank: 4}"))
    assert run("attack", "privacy", "run.yaml", "--trials", "1", "--attacks", "tokens") == 2
    assert "training.adapter" in capsys.readouterr().err


def test_a_file_alone_is_a_matrix(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("attack", "missing.yaml") == 2
    assert "missing.yaml" in capsys.readouterr().err
    assert run("attack", "--processes", "1", "missing.yaml") == 2
    assert "missing.yaml" in capsys.readouterr().err


def test_the_help_names_both_forms(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("attack", "--help") == 0
    out = capsys.readouterr().out
    assert "matrix" in out
    assert "privacy" in out
