"""`barnraise forecast` on runs that work, were interrupted, have just begun, are over, or are none."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from barnraise.cli.main import main
from barnraise.ledger import Decision, RunDirectory

from ...simulated_runs import TOKENS, beginning, directory, end_of, played


@pytest.fixture(scope="module")
def simulated() -> list[Decision]:
    return played()


@pytest.fixture(scope="module")
def run(simulated: list[Decision], tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return directory(tmp_path_factory.mktemp("runs"), beginning(simulated, 0.4))


def told(capsys: pytest.CaptureFixture[str], *arguments: str, command: str = "forecast", code: int = 0) -> str:
    try:
        ended: object = main([command, *arguments])
    except SystemExit as left:
        ended = left.code
    captured = capsys.readouterr()
    assert ended == code, captured.err
    return captured.out if code == 0 else captured.err


def values(capsys: pytest.CaptureFixture[str], run: RunDirectory, *options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(told(capsys, str(run.path), "--json", *options))
    return found


def test_an_interrupted_run_is_forecast_as_if_it_continued(
    run: RunDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    text = told(capsys, str(run.path))
    assert "of 1,000,000 tokens, 4 workers present" in text
    assert "if it is resumed now" in text
    for change in ("three phones join", "ann, the fastest node, leaves", "local steps 40", "local steps 10", "density"):
        assert change in text
    assert "later" in next(line for line in text.splitlines() if "the fastest node" in line)


def test_a_working_run_has_a_time_of_day(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    with run.lock():
        text = told(capsys, str(run.path), "--leave", "dan")
    assert " at " in text
    assert "resumed" not in text


def test_a_program_gets_seconds(
    run: RunDirectory, simulated: list[Decision], capsys: pytest.CaptureFixture[str]
) -> None:
    found = values(capsys, run, "--join", "ann:2", "--leave", "bob", "--leave", "bob", "--local-steps", "10")
    assert found["at"] == pytest.approx(end_of(simulated), rel=0.1)
    assert found["low_seconds"] < found["seconds"] < found["high_seconds"]
    (change,) = found["changes"]
    assert change["change"] == "2 like ann join, bob leaves, local steps 10"
    assert change["change_seconds"] == pytest.approx(change["seconds"] - found["seconds"], abs=0.01)
    assert change["change_seconds"] < 0.0


def test_the_status_of_a_working_run_says_when_it_ends(
    simulated: list[Decision], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from barnraise.core.types import Blob
    from barnraise.wire.manifest import Manifest

    run = directory(tmp_path, beginning(simulated, 0.4))
    (run.path / "manifest.json").write_bytes(Manifest({"model_type": "gpt2"}, Blob("ab" * 32, 1), 10).encode())
    with run.lock():
        text = told(capsys, str(run.path), command="status")
        found = json.loads(told(capsys, str(run.path), "--json", command="status"))
    assert "  ends     in " in text
    assert found["forecast"]["at"] == pytest.approx(end_of(simulated), rel=0.1)
    assert found["forecast"]["budget"] == TOKENS
    assert "  ends " not in told(capsys, str(run.path), command="status")  # no controller works


def test_a_finished_run_says_when_it_ended(
    simulated: list[Decision], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = told(capsys, str(directory(tmp_path, simulated).path), code=2)
    assert "the run is over, nothing is left to forecast: it ended after" in text


def test_a_run_that_has_just_begun_says_what_is_missing(
    simulated: list[Decision], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "only 0 contributions" in told(capsys, str(directory(tmp_path, simulated[:5]).path), code=2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--leave", "dam"), "unknown node 'dam'; did you mean 'dan'? (known: ann, bob, cat, dan)"),
        (("--leave", "x\x1b[2J"), "unknown node 'x [2J'"),
        (("--join", "phoen:3"), "did you mean 'phone'"),
        (("--join", "phone:-1"), "no number of machines from 1 to 1000"),
        (("--density", "0"), "--density 0: a share is above 0 and at most 1"),
        (("--density", "nan"), "--density nan: a share is above 0 and at most 1"),
        (("--local-steps", "0"), "local-steps"),
        (("--local-steps", "many"), "should be a valid integer"),
    ],
)
def test_a_change_that_cannot_be_is_refused(
    run: RunDirectory, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], said: str
) -> None:
    text = told(capsys, str(run.path), *options, code=2)
    assert said in text
    assert "Traceback" not in text
    assert "\x1b" not in text


def test_a_folder_without_a_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no run directory" in told(capsys, str(tmp_path / "none"), code=2)
    assert "has no run.yaml and no ledger.sqlite" in told(capsys, str(tmp_path), code=2)


def test_a_ledger_that_is_none_is_refused(
    run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, content in (
        ("text", b"no ledger at all" * 100),
        ("half", run.ledger.read_bytes()[:20_000]),
        ("empty", b""),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "run.yaml").write_bytes(run.run_file.read_bytes())
        (folder / "ledger.sqlite").write_bytes(content)
        text = told(capsys, str(folder), code=2 if name == "empty" else 1)
        assert "ledger.sqlite" in text
        assert "Traceback" not in text


def test_a_ledger_of_another_program_or_version_is_refused(
    run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.yaml").write_bytes(run.run_file.read_bytes())
    ledger = tmp_path / "ledger.sqlite"
    connection = sqlite3.connect(ledger)
    connection.execute("CREATE TABLE accounts (name TEXT)")
    connection.commit()
    assert "is not the ledger of a run" in told(capsys, str(tmp_path), code=2)
    connection.execute("CREATE TABLE meta (key TEXT, value)")
    connection.execute("INSERT INTO meta VALUES ('schema', 99)")
    connection.commit()
    connection.close()
    assert "has ledger schema 99" in told(capsys, str(tmp_path), code=2)


def test_a_damaged_run_file_is_refused(run: RunDirectory, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run.yaml").write_text("training: [")
    (tmp_path / "ledger.sqlite").write_bytes(run.ledger.read_bytes())
    assert "not YAML" in told(capsys, str(tmp_path), code=2)
