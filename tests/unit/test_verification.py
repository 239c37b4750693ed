"""What `verify` says of a ledger, its write-ahead log and a folder of few files. Whole runs: e2e/test_verify.py."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from barnraise.cli.main import main
from barnraise.core.errors import CorruptionError
from barnraise.ledger import Ledger, Noted, RunDirectory, chain, notes, seal, write_ahead
from barnraise.verification import Certificate, Check, Finding, LedgerRow, Part, Subject, verify
from barnraise.verification.certificate import Marks
from barnraise.verification.files import FilesCheck
from barnraise.verification.payloads import PayloadsCheck
from barnraise.verification.rows import LedgerCheck
from barnraise.verification.subject import ExpectedHead

from .. import decisions as some
from .test_ledger import a_run, payloads_of

RUN = [decision for decision in a_run() if getattr(decision, "assignment", 0) != 9]  # which was never assigned
COMMITS = [3, 5, 6, 9, 12, len(RUN)]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory.create("barn", tmp_path)
    run.run_file.write_text("run: {name: barn}\n")
    with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
        for start, stop in zip([0, *COMMITS], COMMITS, strict=False):
            ledger.commit(RUN[start:stop], payloads_of(RUN[start:stop]))
    return run


def change(run: RunDirectory, *statements: str) -> None:
    with closing(sqlite3.connect(run.ledger)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def found(run: RunDirectory, *checks: Check) -> list[tuple[str, str]]:
    certificate = verify(run, checks or [LedgerCheck()])
    assert certificate.sound == (not certificate.findings)
    return [(finding.file, finding.place) for finding in certificate.findings]


def test_a_sound_ledger(run: RunDirectory) -> None:
    assert found(run) == []
    part = verify(run, [LedgerCheck()]).parts[0]
    assert part.figures == {"rows": len(RUN), "heads": len(COMMITS)}
    assert verify(run, [LedgerCheck()]).marks.rows == len(RUN)


@pytest.mark.parametrize(
    ("statement", "place"),
    [
        ("UPDATE contributions SET seconds = 1e9 WHERE id = 6", "row 6"),
        ("UPDATE contributions SET tokens = tokens + 1 WHERE id = 7", "one of rows 7 to 9"),
        ("UPDATE nodes SET epoch = 7 WHERE id = 1", "one of rows 1 to 3"),
        (f"UPDATE events SET detail = '{{}}' WHERE id = {len(RUN) - 1}", f"one of rows 13 to {len(RUN)}"),
        ("UPDATE chain SET head = replace(head, substr(head, 1, 1), 'z') WHERE id = 6", "table chain, id 6"),
        (f"UPDATE chain SET head = '{'ab' * 32}' WHERE id = 3", "table chain, id 3"),
    ],
)
def test_a_change_is_found_and_its_place_is_named(run: RunDirectory, statement: str, place: str) -> None:
    """Of the one commit; those behind it are sound."""
    change(run, statement)
    places = [place for file, place in found(run) if file == "ledger.sqlite"]
    assert place in places
    assert sum(("row" in other and "table events" not in other) or "chain" in other for other in places) == 1


def test_changes_of_two_commits_are_both_found(run: RunDirectory) -> None:
    change(run, "UPDATE nodes SET epoch = 7 WHERE id = 1", "UPDATE contributions SET seconds = 1e9 WHERE id = 6")
    assert {("ledger.sqlite", "one of rows 1 to 3"), ("ledger.sqlite", "row 6")} <= set(found(run))


def test_rows_that_are_missing_or_in_no_chain(run: RunDirectory) -> None:
    change(run, f"DELETE FROM chain WHERE id = {len(RUN)}")
    assert found(run) == [("ledger.sqlite", f"rows 13 to {len(RUN)}")]
    change(run, "DELETE FROM events WHERE id = 8")
    assert ("ledger.sqlite", "row 8") in found(run)


def test_what_stands_beside_the_rows_agrees_with_them(run: RunDirectory) -> None:
    with Ledger(run.ledger, run.segments) as ledger:
        ledger.commit([Noted(11.0, notes.Started("ab" * 32, run.path.name))])
    assert found(run) == []
    change(run, "UPDATE meta SET value = 'barm' WHERE key = 'run'", "UPDATE meta SET value = 1 WHERE key = 'epoch'")
    assert found(run) == [("ledger.sqlite", "table meta, run"), ("ledger.sqlite", "table meta, epoch")]


def test_an_older_ledger_has_no_chain_and_is_not_wrong_for_that(run: RunDirectory) -> None:
    change(run, "DROP TABLE chain")
    part = verify(run, [LedgerCheck()]).parts[0]
    assert part.findings == []
    assert [left.what for left in part.unchecked] == ["the hash chain"]
    Ledger(run.ledger, run.segments).close()
    part = verify(run, [LedgerCheck()]).parts[0]
    assert (part.findings, part.unchecked, part.figures["heads"]) == ([], [], 1)


def test_a_decision_that_does_not_follow(run: RunDirectory) -> None:
    """Though somebody made the chain anew for it."""
    with Ledger(run.ledger, run.segments) as ledger:
        ledger.commit([some.judged(11.0, 77, "a", verdict="refused")])
    assert found(run) == [("ledger.sqlite", f"row {len(RUN) + 1}, table contributions")]


class Reads(Check):
    """A check of somebody else's: it sees every row, and the state as of it."""

    name, says = "reads", "Rows can be seen."

    def row(self, row: LedgerRow) -> None:
        assert row.decision is not None
        self.count("seen")
        self.figures["assigned"] = self.subject.history.state.totals.assigned

    def end(self) -> None:
        raise CorruptionError("it cannot go on")


def test_a_check_that_comes_from_elsewhere(run: RunDirectory) -> None:
    certificate = verify(run, [LedgerCheck(), Reads()])
    part = certificate.parts[1]
    assert part.figures == {"seen": len(RUN), "assigned": 3}
    assert [finding.found for finding in part.findings] == ["CorruptionError: it cannot go on"]
    assert not certificate.sound


def test_an_older_copy_of_the_ledger_does_not_lead_to_what_was_noted(run: RunDirectory) -> None:
    class Noticed(Check):
        name, says = "noticed", "A head was noted."

        def begin(self, subject: Subject) -> None:
            subject.expected_heads += [
                ExpectedHead("seal.json", 40, "ab" * 32),
                ExpectedHead("seal.json", 5, "cd" * 32),
            ]

    assert found(run, LedgerCheck(), Noticed()) == [
        ("ledger.sqlite", "row 5 or one before"),
        ("ledger.sqlite", f"rows {len(RUN) + 1} to 40"),
    ]


# The write-ahead log


@pytest.fixture
def crashed(run: RunDirectory, tmp_path: Path) -> RunDirectory:
    """As kill -9 leaves it: rows stand in the log alone."""
    with Ledger(run.ledger, run.segments) as ledger:
        for number in range(20):
            ledger.commit([Noted(20.0 + number, notes.Continued())])
        shutil.copytree(run.path, tmp_path / "crashed")
    return RunDirectory(tmp_path / "crashed")


def contents(run: RunDirectory) -> dict[str, bytes]:
    return {str(path.relative_to(run.path)): path.read_bytes() for path in run.path.rglob("*") if path.is_file()}


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x10
    path.write_bytes(content)


def test_a_crashed_run_is_read_from_its_log_and_left_as_it_is(crashed: RunDirectory) -> None:
    (crashed.path / "ledger.sqlite-shm").unlink(missing_ok=True)
    before = contents(crashed)
    assert found(crashed) == []
    assert verify(crashed, [LedgerCheck()]).marks.rows == len(RUN) + 20
    assert contents(crashed) == before


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.3, 0.5, 0.7])
def test_a_byte_of_the_log_is_found(crashed: RunDirectory, share: float) -> None:
    """SQLite says nothing: for it the log ends there."""
    log = crashed.ledger.with_name("ledger.sqlite-wal")
    assert list(write_ahead.damage(log)) == []
    size, frame = log.stat().st_size, 24 + 4096
    place = int(share * size)
    flip(log, place)
    start = 0 if place < 32 else 32 + (place - 32) // frame * frame
    assert list(write_ahead.damage(log)) == [start]
    assert found(crashed)[0] == ("ledger.sqlite-wal", f"byte {start} and what follows")


def test_a_commit_that_a_crash_cut_short_is_no_damage(crashed: RunDirectory) -> None:
    log = crashed.ledger.with_name("ledger.sqlite-wal")
    content = log.read_bytes()
    log.write_bytes(content[:-1000])
    assert list(write_ahead.damage(log)) == []
    log.write_bytes(content[:-1000] + bytes(1000))
    assert list(write_ahead.damage(log)) == []


# Payloads and files


def test_each_payload_is_what_the_ledger_says(run: RunDirectory) -> None:
    numbers = sorted(payloads_of(RUN))
    *places, lacking = [place for _, place in found(run, LedgerCheck(), PayloadsCheck())]
    assert lacking == "contributions 1, 3", "they are not of the digest that the decisions name"
    assert all(f"the payload of contribution {n}" in place for n, place in zip(numbers, places, strict=True))
    with closing(sqlite3.connect(run.ledger)) as connection:
        for number, payload in payloads_of(RUN).items():
            digest = hashlib.sha256(payload).hexdigest()
            connection.execute("UPDATE contributions SET digest = ? WHERE assignment = ?", (digest, number))
        connection.execute("DELETE FROM chain")
        chain.take_up(connection)
        connection.commit()
    assert found(run, LedgerCheck(), PayloadsCheck()) == []
    (segment,) = run.segments.iterdir()
    for place in range(segment.stat().st_size):
        flip(segment, place)
        assert f"segments/{segment.name}" in {file for file, _ in found(run, LedgerCheck(), PayloadsCheck())}
        flip(segment, place)
    segment.unlink()
    assert found(run, LedgerCheck(), PayloadsCheck()) == [("segments", "contributions 1, 3")]


def test_a_payload_that_the_run_itself_found_damaged_is_no_news(run: RunDirectory) -> None:
    (segment,) = run.segments.iterdir()
    flip(segment, 30)
    assert len(found(run, PayloadsCheck())) == 3
    with Ledger(run.ledger, run.segments) as ledger:
        voided = [notes.Voided(number, 1, "damaged", False) for number in (1, 3)]
        ledger.commit([Noted(11.0, note) for note in voided])
    part = verify(run, [PayloadsCheck()]).parts[0]
    assert [finding.place for finding in part.findings] == ["bytes 65 to 73, the payload of contribution 3"]
    assert "contribution 1" in part.unchecked[0].what


def test_logs_may_grow_and_nothing_else(run: RunDirectory) -> None:
    (run.logs / "worker.log").write_text("hello\n")
    seal.put(run)

    def files() -> Sequence[str]:
        return [file for file, _ in found(run, FilesCheck()) if file not in ("manifest.json", "data/meta.json")]

    assert files() == []
    (run.logs / "worker.log").write_text("hello\nand more\n")
    (run.path / "new").write_text("")
    assert files() == []
    assert "new" in [left.what for left in verify(run, [FilesCheck()]).parts[0].unchecked]
    (run.logs / "worker.log").write_text("hullo\n")
    assert files() == ["logs/worker.log"]
    run.run_file.unlink()
    assert files() == ["logs/worker.log", "run.yaml"]


# The command


def test_the_page_is_text_whatever_the_run_directory_says() -> None:
    evil = "<script>alert(1)</script> | [x](y) \x1b[31m"
    part = Part("ledger", "All is well.", {"rows": 1}, [Finding(evil, evil, evil, evil, evil)], [])
    certificate = Certificate("run", "finished", False, Marks(1, "ab", ""), [part], 1.0, "2026-01-31T00:00:00Z")
    page = certificate.page()
    assert "<script" not in page
    assert "\x1b" not in page
    assert "**Not sound.** 1 thing is" in page
    (line,) = [line for line in page.splitlines() if "alert" in line]
    assert line.count(" | ") == 4


@pytest.mark.parametrize("arguments", [["nowhere"], ["RUN", "--to", "RUN/model"], ["RUN", "--versions", "-1"]])
def test_bad_input(run: RunDirectory, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    given: list[Any] = [argument.replace("RUN", str(run.path)) for argument in arguments]
    try:
        code = main(["verify", *given])
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code == 2
    capsys.readouterr()
