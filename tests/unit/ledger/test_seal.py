"""The seal of a run that is over: of which files it is, and what of it can change unnoticed."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from barnraise.account.run_status import marks_of
from barnraise.core.errors import CorruptionError
from barnraise.ledger import Ledger, LedgerView, RunDirectory, seal

from .test_ledger import a_run, payloads_of


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory.create("barn", tmp_path)
    with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
        decisions = a_run()
        ledger.commit(decisions, payloads_of(decisions))
    run.run_file.write_text("run: {name: barn}\n")
    (run.logs / "worker-a.log").write_text("at work\n")
    return run


def test_every_file_is_sealed_but_those_that_are_open(run: RunDirectory) -> None:
    with run.lock(), LedgerView(run.ledger):
        put = seal.put(run)
    assert set(put.files) == {"ledger.sqlite", "logs/worker-a.log", "run.yaml", "segments/00000001.seg"}
    assert (run.path / "ledger.sqlite-wal").exists(), "left by the reader"
    with LedgerView(run.ledger) as view:
        assert (put.rows, put.head) == view.head
    assert seal.read(run) == put
    assert marks_of(run).seal == put.digest
    assert seal.put(run) == put, "reading changes nothing that is sealed"


def test_the_write_ahead_log_is_merged_before_the_seal(run: RunDirectory) -> None:
    with closing(sqlite3.connect(run.ledger)) as open_elsewhere:
        assert open_elsewhere.execute("SELECT count(*) FROM events").fetchone()
        with Ledger(run.ledger, run.segments):
            pass
        assert (run.path / "ledger.sqlite-wal").stat().st_size > 0
        put = seal.put(run)
    assert "ledger.sqlite-wal" not in put.files


def test_one_byte_of_the_seal_is_noticed_wherever_it_is(run: RunDirectory) -> None:
    seal.put(run)
    content = run.seal.read_bytes()
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        run.seal.write_bytes(flipped)
        with pytest.raises(CorruptionError, match=r"seal\.json is damaged"):
            seal.read(run)
    assert marks_of(run).seal == ""
    run.seal.write_bytes(content)
    assert seal.read(run) is not None


def test_a_new_seal_of_changed_files_has_another_digest(run: RunDirectory) -> None:
    before = seal.put(run).digest
    run.run_file.write_text("run: {name: bern}\n")
    assert seal.put(run).digest != before
    assert json.loads(run.seal.read_text())["run"] == run.path.name


def test_no_seal_is_of_what_lies_outside(run: RunDirectory) -> None:
    put = seal.put(run)
    for name in ("../other/run.yaml", "/etc/hostname", "keys/../../other"):
        forged = msgspec.structs.replace(put, files={**put.files, name: put.files["run.yaml"]})
        run.seal.write_bytes(msgspec.structs.replace(forged, digest=forged.bare_digest()).encode())
        with pytest.raises(CorruptionError):
            seal.read(run)


def test_a_run_without_one_has_none(run: RunDirectory) -> None:
    assert seal.read(run) is None
