"""The findings of `verify` about a ledger, its log and a folder of few files. Whole runs: e2e/test_verify.py."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barnraise.assembly import addresses
from barnraise.assembly.standby import MARK
from barnraise.cli.main import main
from barnraise.cli.verify import EXIT_CODES, show
from barnraise.core.errors import CorruptionError
from barnraise.core.types import Transcript
from barnraise.ledger import Ledger, Noted, RunDirectory, chain, notes, seal, write_ahead
from barnraise.ledger.decisions import Change, Decision, NodeChanged, VersionClosed, VersionMade
from barnraise.verification import Certificate, CertificatePart, Check, CheckFinding, LedgerRow, Subject, verify
from barnraise.verification.certificate import CheckedMarks
from barnraise.verification.files import FilesCheck
from barnraise.verification.payloads import PayloadsCheck
from barnraise.verification.rows import LedgerCheck
from barnraise.verification.signed import SignedCheck
from barnraise.verification.subject import ExpectedHead
from barnraise.verification.work import WorkCheck

from ... import decisions as some
from ..ledger.test_ledger import a_run, payloads_of

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
    assert (certificate.verdict == "not sound") == bool(certificate.findings)
    assert certificate.sound == (not certificate.findings and not certificate.not_checked)
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
    """The findings name one commit; the commits after it are sound."""
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


def test_the_meta_table_agrees_with_the_rows(run: RunDirectory) -> None:
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
    """The wrong decision is found although the chain covers it."""
    with Ledger(run.ledger, run.segments) as ledger:
        ledger.commit([some.judged(11.0, 77, "a", verdict="refused")])
    assert found(run) == [("ledger.sqlite", f"row {len(RUN) + 1}, table contributions")]


class Reads(Check):
    """A check of another package: it sees every row, and the state as of it."""

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
    """Leave the ledger as kill -9 does: some rows are in the log alone."""
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


def test_a_run_that_is_over_has_a_seal(run: RunDirectory) -> None:
    with Ledger(run.ledger, run.segments) as ledger:
        ledger.commit([Noted(11.0, notes.Finished("the token budget is met"))])
    assert "seal.json" in {file for file, _ in found(run, LedgerCheck(), FilesCheck())}
    seal.put(run)
    assert "seal.json" not in {file for file, _ in found(run, LedgerCheck(), FilesCheck())}
    run.seal.unlink()
    (run.path / MARK).write_text("a standby's copy")
    assert "seal.json" not in {file for file, _ in found(run, LedgerCheck(), FilesCheck())}


def kept(all_payloads: bool) -> Noted:
    return Noted(11.0, notes.RunFile("", {"controller": {"keep_payloads": all_payloads}}))


def later(run: RunDirectory, *decisions: Decision, epochs: int = 0) -> None:
    """Continue the run, by a controller that is `epochs` later."""
    with Ledger(run.ledger, run.segments) as ledger:
        ledger.epoch += epochs
        ledger.commit(decisions, payloads_of(list(decisions)))


def one_more(number: int, version: int) -> list[Decision]:
    digest = hashlib.sha256(b"payload %d" % number).hexdigest()
    return [
        some.assigned(12.0, number, "a"),
        some.judged(12.0, number, "a", digest=digest),
        VersionClosed(12.0, version, (number,), num_nodes=1, tokens=400, reason="full"),
        VersionMade(12.0, version, "ef" * 32, 400),
    ]


def test_payloads_that_the_run_file_wants_kept_are_there(run: RunDirectory) -> None:
    """From the row on that says so, also of a run that is over; a standby that took over has only later ones."""
    made = VersionMade(11.0, 2, "ef" * 32, 400)
    over = Noted(13.0, notes.Finished("the token budget is met"))
    later(run, made, kept(True), *one_more(20, 3), over)
    assert ("segments", "contributions 20") not in found(run, LedgerCheck(), PayloadsCheck())
    for segment in run.segments.iterdir():
        segment.unlink()
    part = verify(run, [LedgerCheck(), PayloadsCheck()]).parts[1]
    assert [(one.place, one.expected.partition(":")[0]) for one in part.findings] == [
        ("contributions 20", "payloads of all contributions")
    ]
    assert part.num_unchecked == 2, "those that were accepted before"
    later(run, Noted(14.0, notes.Resumed(3, 1 << 20)), epochs=1 << 20)
    part = verify(run, [LedgerCheck(), PayloadsCheck()]).parts[1]
    assert (part.findings, part.num_unchecked) == ([], 3)


def test_payloads_may_be_deleted_once_the_run_file_allows_it(run: RunDirectory) -> None:
    over = Noted(13.0, notes.Finished("the token budget is met"))
    later(run, VersionMade(11.0, 2, "ef" * 32, 400), kept(True), *one_more(20, 3), kept(False), over)
    for segment in run.segments.iterdir():
        segment.unlink()
    part = verify(run, [LedgerCheck(), PayloadsCheck()]).parts[1]
    assert (part.findings, part.num_unchecked) == ([], 3)


@pytest.mark.parametrize(
    ("terms", "told", "missing"),
    [
        ({"pace": 0.25}, {"transcript": Transcript(0, 8, True, ())}, False),
        ({"pace": 0.25}, {}, True),
        ({}, {"transcript": Transcript(0, 8, True, ())}, True),
        ({"pace": 0.25}, {"transcript": Transcript(0, 8, True, ()), "digest": ""}, True),
        ({"pace": 0.25}, {"verdict": "refused"}, False),
    ],
)
def test_a_contribution_of_a_stateless_run_has_a_transcript(
    tmp_path: Path, terms: dict[str, Any], told: dict[str, Any], missing: bool
) -> None:
    run = stateless(tmp_path)
    with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
        decisions: list[Decision] = [
            NodeChanged(time=0.0, node="a", change=Change.ENROLLED, key="k"),
            some.assigned(1.0, 1, "a", **terms),
            some.judged(2.0, 1, "a", **told),
        ]
        ledger.commit(decisions, payloads_of(decisions))
    part = verify(run, [LedgerCheck(), WorkCheck()]).parts[1]
    assert [one.place for one in part.findings] == ["row 3 of table contributions, contribution 1 of a"] * missing
    assert part.num_unchecked == (0 if missing or "verdict" in told else 1)


def test_contributions_that_are_not_drawn_are_counted(tmp_path: Path) -> None:
    run = stateless(tmp_path)
    decisions: list[Decision] = [NodeChanged(time=0.0, node="a", change=Change.ENROLLED, key="k")]
    for number in range(1, 8):
        decisions += [
            some.assigned(1.0, number, "a", pace=0.25),
            some.judged(2.0, number, "a", transcript=Transcript(0, 8, True, ())),
        ]
    with Ledger(run.ledger, run.segments, run=run.path.name) as ledger:
        ledger.commit(decisions, payloads_of(decisions))
    part = verify(run, [LedgerCheck(), WorkCheck(most=2)]).parts[1]
    assert part.verdict == "sound as far as checked"
    assert part.num_unchecked == 7
    assert {left.what: left.count for left in part.unchecked}["contributions that were not drawn"] == 5


def stateless(folder: Path) -> RunDirectory:
    run = RunDirectory.create("barn", folder)
    run.run_file.write_text(
        "run: {name: barn, dir: .}\nmodel: {architecture: gpt_neo, config: {hidden_size: 8, num_layers: 1}}\n"
        "data: {kind: text, files: [nothing.txt], tokenizer: bytes, context: 16}\n"
        "training: {tasks: stateless, tokens: 100000}\nworkers: [{name: a}]\n"
    )
    (run.path / addresses.FILE).write_bytes(msgspec.json.encode(addresses.Whereabouts("", "train")))
    return run


# The command


@pytest.mark.parametrize(
    ("checks", "code", "told"),
    [
        ([LedgerCheck], 0, "sound"),
        ([LedgerCheck, SignedCheck], 3, "sound as far as checked; not checked: signatures 2"),
        ([LedgerCheck, PayloadsCheck], 1, "3 things are wrong"),
    ],
)
def test_the_last_line_and_the_exit_code_say_how_far_it_was_checked(
    run: RunDirectory,
    checks: list[type[Check]],
    code: int,
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    certificate = verify(run, [check() for check in checks])
    assert EXIT_CODES[certificate.verdict] == code
    show(certificate, None)
    assert capsys.readouterr().out.splitlines()[-1].startswith(told)


def test_the_page_is_text_whatever_the_run_directory_says() -> None:
    evil = "<script>alert(1)</script> | [x](y) \x1b[31m"
    part = CertificatePart("ledger", "All is well.", {"rows": 1}, [CheckFinding(evil, evil, evil, evil, evil)], [])
    marks = CheckedMarks(1, "ab", "")
    certificate = Certificate("run", "finished", "not sound", False, {}, marks, [part], 1.0, "2026-01-31T00:00:00Z")
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
