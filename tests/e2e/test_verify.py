"""A whole run, verified: while it works, after a crash, once it is over, and with any byte of it flipped."""

from __future__ import annotations

import json
import random
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from barnraise.ledger import RunDirectory, chain
from barnraise.ledger.seal import OPEN
from barnraise.trust.repeats import PERTURBATION
from barnraise.verification import Certificate, standard, verify

from .conftest import Process
from .test_train import view_of

FLIPS = 2
"""Places of each file in which a bit is flipped."""


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def flip(path: Path, place: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 1 << place % 8]))


def named(certificate: Certificate) -> set[str]:
    return {finding.file for finding in certificate.findings}


@pytest.fixture
def finished(barnraise: Callable[..., Process], run_file: Callable[..., Path]) -> Path:
    """A run that is over, whose controller was killed once on the way."""
    section = {"evaluations": 3, "evaluation_rows": 16, "checkpoint_seconds": 1.0, "keep_payloads": True}
    training = {"tokens": 60_000, "batch_size": 4, "local_steps": 5, "learning_rate": 0.003, "average": 0.2}
    first = barnraise("train", str(run_file(controller=section, training=training)), "--json")
    run_dir = Path(first.wait_for(lambda text: (m := re.search(r"run directory (\S+)", text)) and m[1]))

    def begun(_: str) -> bool:
        view = view_of(run_dir)
        return view is not None and len(view.versions()) >= 8

    first.wait_for(begun)
    working = verify(RunDirectory.open(run_dir))
    assert (working.standing, working.findings) == ("running", [])
    first.kill()
    before = contents(run_dir)
    crashed = verify(RunDirectory.open(run_dir))
    assert (crashed.standing, crashed.findings) == ("not finished", [])
    assert "the run has no seal" in str(crashed.parts[1].unchecked)
    assert contents(run_dir) == before
    resumed = barnraise("resume", str(run_dir), "--json")
    assert resumed.wait() == 0, resumed.text()
    return run_dir


@pytest.mark.slow
def test_a_run_is_verified_to_the_byte(barnraise: Callable[..., Process], finished: Path, tmp_path: Path) -> None:
    before = contents(finished)
    assert [path for path in [finished, *finished.rglob("*")] if path.stat().st_mode & 0o077] == [], "all is private"
    process = barnraise("verify", str(finished), "--json", "--to", str(tmp_path / "certificate"))
    assert process.wait() == 3, process.text()
    told = process.json()
    parts = {part["name"]: part for part in told["parts"]}
    assert (told["verdict"], told["sound"]) == ("sound as far as checked", False)
    assert told["not_checked"] == {"work": parts["payloads"]["figures"]["payloads"]}, "tasks are stateful"
    assert told["standing"] == "finished"
    assert parts["versions"]["figures"]["made again"] == parts["versions"]["figures"]["versions"] > 8
    assert parts["versions"]["figures"]["checkpoints compared"] == 2
    assert parts["versions"]["unchecked"] == []
    signed = parts["payloads"]["figures"]["payloads"]
    assert parts["signatures"]["figures"] == {"signed": signed, "of nodes that sign nothing": 0}
    assert parts["checkpoints"]["figures"]["states"] == 2
    assert parts["model"]["figures"]["version"] == parts["versions"]["figures"]["versions"]
    assert contents(finished) == before
    assert len(list((finished / "segments").iterdir())) == 2, "a checkpoint covers all of the first"
    status = barnraise("status", str(finished), "--json")
    assert status.wait() == 0
    assert {key: status.json()[key] for key in ("rows", "head", "seal")} == told["marks"]
    kept = json.loads((tmp_path / "certificate" / "certificate.json").read_text())
    assert kept == told
    page = (tmp_path / "certificate" / "certificate.md").read_text()
    assert "**Sound as far as checked.**" in page
    assert told["marks"]["seal"] in page
    resumed_once_more(barnraise, finished, told["marks"]["seal"])
    flips_of_each_file(finished)
    without_the_seal(finished)
    shutil.copytree(finished, tmp_path / "forged")
    a_forged_history(tmp_path / "forged")
    flip(finished / "model" / "config.json", 5)
    process = barnraise("verify", str(finished), "--versions", "2")
    assert process.wait() == 1, process.text()
    assert "wrong: model/config.json" in process.text()
    assert "2 were asked for" in process.text()


def resumed_once_more(barnraise: Callable[..., Process], run_dir: Path, before: str) -> None:
    """A run that is over is left as it is; one that was not sealed yet is, by the controller that ended it."""
    files = contents(run_dir)
    for command in ("resume", "finish"):
        process = barnraise(command, str(run_dir), "--json")
        assert process.wait() == 0, process.text()
        assert process.json()["seal"] == before
        there = contents(run_dir)
        assert {name: content for name, content in there.items() if name not in OPEN} == {
            name: content for name, content in files.items() if name not in OPEN
        }
    (run_dir / "seal.json").unlink()
    assert named(verify(RunDirectory.open(run_dir))) == {"seal.json"}
    process = barnraise("resume", str(run_dir), "--json")
    assert process.wait() == 0, process.text()
    assert process.json()["seal"]
    assert verify(RunDirectory.open(run_dir)).findings == []


def flips_of_each_file(run_dir: Path) -> None:
    """One bit, anywhere."""
    run, chance = RunDirectory.open(run_dir), random.Random(5)
    files = [name for name, content in contents(run_dir).items() if content and name not in OPEN]
    assert len(files) > 25
    for name in [*files, "seal.json", *["ledger.sqlite"] * 5]:
        path = run_dir / name
        for _ in range(FLIPS):
            place = chance.randrange(path.stat().st_size)
            flip(path, place)
            certificate = verify(run, standard(most_versions=0)[:4])
            assert name in named(certificate), (name, place, certificate.findings)
            flip(path, place)
    assert verify(run, standard(most_versions=0)).findings == []


def without_the_seal(run_dir: Path) -> None:
    """Verification names each damaged file without the seal too, from the other records of digests."""
    run = RunDirectory.open(run_dir)
    kept = run.seal.read_bytes()
    run.seal.unlink()
    assert "seal.json" in named(verify(run, standard(most_versions=0)))
    (checkpoint,) = sorted((run_dir / "checkpoints").iterdir())[-1:]
    (segment, *_) = sorted((run_dir / "segments").iterdir())
    names = ["parameters.safetensors", "state.msgpack", "manifest.json"]
    files = [checkpoint / name for name in names] + [segment]
    files += [run_dir / "data" / name for name in ("meta.json", "train-00000.bin", "held_out.bin", "tokenizer.json")]
    files += [run_dir / "manifest.json", run.run_file, run.model / "model.safetensors", run.model / "tokenizer.json"]
    for path in files:
        place = path.stat().st_size * 2 // 3
        flip(path, place)
        name = path.relative_to(run_dir).as_posix()
        assert name in named(verify(run, standard(most_versions=0))), name
        flip(path, place)
    run.seal.write_bytes(kept)


def a_forged_history(run_dir: Path) -> None:
    """Write another digest for a version, and a new chain.

    No checksum is wrong, but no payloads produce that version.
    """
    run = RunDirectory.open(run_dir)
    run.seal.unlink()
    with closing(sqlite3.connect(run.ledger)) as connection:
        connection.execute(f"UPDATE versions SET digest = '{'ab' * 32}' WHERE version = 5")
        connection.execute("DELETE FROM chain")
        chain.take_up(connection)
        connection.commit()
    certificate = verify(run)
    places = {part.name: [(f.file, f.place) for f in part.findings] for part in certificate.parts}
    assert places["versions"] == [("ledger.sqlite", "version 5")]
    assert len(places["ledger"]) == 2, "each checkpoint noted the head before"
    unchecked = [left.what for left in certificate.parts[4].unchecked]
    assert any(what.startswith("versions 6 to") for what in unchecked)


@pytest.mark.campaign
@pytest.mark.slow
def test_verify_finds_the_node_that_skipped_its_tasks(
    barnraise: Callable[..., Process], run_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Honest work is the same to the bit, whatever versions were taken in on the way; the liar's is not."""
    section = {"evaluations": 2, "evaluation_rows": 16, "keep_payloads": True}
    training = {
        "tokens": 40_000, "batch_size": 4, "local_steps": 5, "learning_rate": 0.003,
        "tasks": "stateless", "compression": "int4", "downlink_compression": "int8",
    }  # fmt: skip
    workers = [{"name": "ann"}, {"name": "bob"}, {"name": "eve", "attack": {"kind": "lazy"}}]
    process = barnraise("train", str(run_file(controller=section, training=training, workers=workers)), "--json")
    assert process.wait() == 0, process.text()
    (found,) = re.findall(r"run directory (\S+)", process.text())
    certificate = verify(RunDirectory.open(Path(found)), standard(most_work=10_000))
    work = next(part for part in certificate.parts if part.name == "work")
    assert work.unchecked == []
    assert {finding.place.split(" of ")[1] for finding in work.findings} == {"eve"}
    assert work.figures["done again"] == work.figures["to the bit"] + len(work.findings)
    assert named(certificate) == {finding.file for finding in work.findings}
    assert certificate.not_checked == {}
    where_rounding_leads_as_far(RunDirectory.open(Path(found)), len(work.findings), monkeypatch)
    without_its_transcripts(RunDirectory.open(Path(found)), "eve", {finding.place for finding in work.findings})


def where_rounding_leads_as_far(run: RunDirectory, wrong: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said of contributions that differ, which counts as not checked."""
    monkeypatch.setitem(PERTURBATION, "float32", 0.5)
    certificate = verify(run, standard(most_work=10_000))
    work = next(part for part in certificate.parts if part.name == "work")
    assert (work.findings, certificate.verdict) == ([], "sound as far as checked")
    assert certificate.not_checked == {"work": wrong}


def without_its_transcripts(run: RunDirectory, node: str, places: set[str]) -> None:
    """Delete the transcripts as a host could, so that no node can repeat the tasks, and renew chain and signatures.

    The verification names each of the contributions all the same.
    """
    run.seal.unlink()
    with closing(sqlite3.connect(run.ledger)) as connection:
        connection.execute("UPDATE contributions SET transcript = NULL, signature = '' WHERE node = ?", (node,))
        connection.execute("UPDATE nodes SET signer = '' WHERE node = ?", (node,))
        connection.execute("DELETE FROM chain")
        chain.take_up(connection)
        connection.commit()
    work = next(part for part in verify(run, standard(most_work=10_000)).parts if part.name == "work")
    assert places <= {finding.place.partition(", ")[2] for finding in work.findings}
