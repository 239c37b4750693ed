"""A ledger in a second place: rows as they stand, nothing that does not follow, nothing that is no row."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from barnraise.assembly.standby import MARK, StandbyPlace, stand_by
from barnraise.assembly.voice import Voice
from barnraise.controller.shell.originals import Originals
from barnraise.controller.standby.follower import pieces
from barnraise.core.errors import CorruptionError, RunDirectoryError, StorageError, WireError
from barnraise.ledger import Ledger, NodeChanged, Noted, VersionClosed, VersionMade, notes
from barnraise.ledger.copying import TERM, CopiedRow, DecodedRow, LedgerCopy, RowReader, understood
from barnraise.ledger.decisions import Change
from barnraise.transport import Invite, Keys
from barnraise.transport.seals import sealed, supersedes
from barnraise.trust.roles import STANDBY
from barnraise.wire.messages import Term, Welcome
from barnraise.worker.contact import Contact

from ... import decisions as some
from ...state_machine.engine import MANIFEST, WORKER_SETTINGS

DECISIONS = [
    Noted(0.0, notes.Started("ab" * 32, "run")),
    NodeChanged(0.5, "n", Change.ENROLLED, key="k" * 40),
    VersionClosed(1.0, 1, (), 1, 10, "full"),
    VersionMade(1.5, 1, "cd" * 32, 4),
    Noted(float("nan"), notes.Paused("a reason\nof two lines")),
]


@pytest.fixture
def rows(tmp_path: Path) -> tuple[CopiedRow, ...]:
    with Ledger(tmp_path / "ledger.sqlite", run="run") as ledger:
        ledger.commit(DECISIONS)
    reader = RowReader(tmp_path / "ledger.sqlite")
    found = reader.after(0, 1 << 20)
    assert [row[1] for row in reader.after(0, 0)] == [1]
    assert [row[1] for row in reader.after(3, 1 << 20)] == [4, 5]
    assert (reader.after(5, 1), reader.tail(0), reader.tail(6)) == ((), None, None)
    reader.close()
    return found


def copy_in(folder: Path) -> LedgerCopy:
    return LedgerCopy(folder / "copy.sqlite", folder / "segments", run="run")


def test_a_copy_says_the_same_under_the_same_ids_and_epochs(tmp_path: Path, rows: tuple[CopiedRow, ...]) -> None:
    with copy_in(tmp_path) as copy:
        copy.follow(1)
        copy.append([understood(row) for row in rows[:2]], {})
        copy.append([understood(row) for row in rows[2:]], {})
        assert copy.newest_made() == 1
    again, first = RowReader(tmp_path / "copy.sqlite"), RowReader(tmp_path / "ledger.sqlite")
    assert again.after(0, 1 << 20) == rows
    assert again.tail(5) == first.tail(5) is not None
    again.close()
    first.close()
    with Ledger(tmp_path / "copy.sqlite", tmp_path / "segments") as resumed:
        assert resumed.epoch == TERM + 1
        assert [repr(decision) for _, decision in resumed.replay()] == [repr(decision) for decision in DECISIONS]


def changed(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / "copy.sqlite")) as connection:
        connection.execute(statement)
        connection.commit()


CHANGES = [
    ("UPDATE nodes SET key = 'other' WHERE id = 2", "one of the rows 1 to 3"),
    ("UPDATE events SET time = 9.0 WHERE id = 1", "one of the rows 1 to 3"),
    ("UPDATE versions SET digest = '' WHERE made_id = 4", "row 4"),
    ("DELETE FROM events WHERE id = 1", "one of the rows 1 to 3"),
    ("DELETE FROM events WHERE id = 5", "row 5"),
    (f"UPDATE chain SET head = '{'ab' * 32}' WHERE id = 3", "after row 3"),
]


@pytest.mark.parametrize(("statement", "place"), CHANGES)
def test_a_changed_copy_is_refused(tmp_path: Path, rows: tuple[CopiedRow, ...], statement: str, place: str) -> None:
    found = [understood(row) for row in rows]
    with copy_in(tmp_path) as copy:
        for piece in (found[:3], found[3:4], found[4:]):
            copy.append(piece, {})
    copy_in(tmp_path).close()
    changed(tmp_path, statement)
    with pytest.raises(CorruptionError, match=place):
        copy_in(tmp_path)


def test_rows_copied_since_the_last_check_are_checked(tmp_path: Path, rows: tuple[CopiedRow, ...]) -> None:
    found = [understood(row) for row in rows]
    with copy_in(tmp_path) as copy:
        copy.append(found[:3], {})
        copy.check()
        copy.append(found[3:], {})
        copy.check()
    with copy_in(tmp_path) as copy:
        copy.append([understood(("Noted", 6, 1, 2.0, "paused", "", '{"reason":"x"}'))], {})
        changed(tmp_path, "UPDATE events SET detail = '{}' WHERE id = 6")
        with pytest.raises(CorruptionError, match="row 6"):
            copy.check()


def test_copied_rows_are_checked_as_they_arrive(
    tmp_path: Path, rows: tuple[CopiedRow, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnraise.ledger.copying._UNCHECKED", 2)
    found = [understood(row) for row in rows]
    with copy_in(tmp_path) as copy:
        copy.append(found[:1], {})
        changed(tmp_path, "UPDATE events SET time = 9 WHERE id = 1")
        with pytest.raises(CorruptionError, match="row 1"):
            copy.append(found[1:], {})


def test_a_standby_says_what_to_do_about_a_changed_copy(tmp_path: Path, rows: tuple[CopiedRow, ...]) -> None:
    """The standby refuses the folder before it dials the controller, of which there is none here."""
    how = {"now": time.time(), "lifetime": 60.0, "role": STANDBY}
    invite = Invite.create("127.0.0.1", 9, "run", Keys.generate().public, **how)  # type: ignore[arg-type]
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / MARK).touch()
    with LedgerCopy(folder / "ledger.sqlite", folder / "segments", run="run") as copy:
        copy.append([understood(row) for row in rows], {})
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as connection:
        connection.execute("UPDATE nodes SET key = 'other' WHERE id = 2")
        connection.commit()
    with pytest.raises(RunDirectoryError, match=r"rows 1 to 5 is missing, or is not as it was.*Remove that folder"):
        asyncio.run(stand_by(invite, Voice.of(lambda text: None), StandbyPlace(tmp_path)))


def test_rows_that_do_not_follow_are_refused(tmp_path: Path, rows: tuple[CopiedRow, ...]) -> None:
    found = [understood(row) for row in rows]
    with copy_in(tmp_path) as copy:
        for wrong in (found[1:], [found[0], found[2]], [found[0], found[0]]):
            with pytest.raises(WireError, match="do not follow"):
                copy.append(wrong, {})
        assert copy.last_id == 0


def test_a_row_that_completes_nothing_leaves_the_copy_as_it_was(tmp_path: Path, rows: tuple[CopiedRow, ...]) -> None:
    name, _, *columns = rows[3]
    with copy_in(tmp_path) as copy:
        with pytest.raises(WireError):
            copy.append([understood((name, 1, *columns))], {})
        copy.append([understood(row) for row in rows], {})
        assert copy.last_id == 5


def test_rows_are_cut_where_their_payloads_are_many_bytes() -> None:
    sizes = [None, 3, None, 4, 20, None, 5, 5, None]
    found = [
        DecodedRow((), number, DECISIONS[0] if size is None else some.judged(0.0, number, "n", num_bytes=size))
        for number, size in enumerate(sizes)
    ]
    assert [[row.id for row in piece] for piece in pieces(found, 10)] == [[0, 1, 2, 3], [4, 5], [6, 7, 8]]
    assert list(pieces([], 10)) == []


def test_interleaved_reads_of_two_payloads_read_only_the_requested_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    payloads, parts = {1: bytes(range(250)) * 40, 2: bytes(range(200)) * 50}, []
    with Ledger(tmp_path / "ledger.sqlite", run="run") as ledger:
        ledger.segments.append(payloads)
        originals = Originals(tmp_path, [], ledger)
        originals._payloads.update({"1": 1, "2": 2})
        pread = os.pread
        monkeypatch.setattr(os, "pread", lambda *args: parts.append(args[1]) or pread(*args))
        for offset in (0, 4000, 8000, 12_000):
            for number, payload in payloads.items():
                assert originals.read(str(number), offset, 4000) == payload[offset : offset + 4000]
    assert sum(parts) <= 20_000


@pytest.mark.parametrize("written", range(6))
def test_a_copy_interrupted_anywhere_is_reopened_and_continues(
    tmp_path: Path, written: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    payloads = {1: b"one" * 1000, 2: b"two" * 1000}
    decisions = [DECISIONS[1]]
    for number in payloads:
        decisions += [some.assigned(1.0, number, "n"), some.judged(2.0, number, "n", num_bytes=3000)]
    with Ledger(tmp_path / "ledger.sqlite", tmp_path / "original", run="run") as ledger:
        for decision in [*decisions, DECISIONS[0]]:
            brings = {number: payloads[number] for number in payloads if decision == decisions[2 * number]}
            ledger.commit([decision], brings)
    reader = RowReader(tmp_path / "ledger.sqlite")
    found = [understood(row) for row in reader.after(0, 1 << 20)]
    reader.close()
    calls = iter(range(100))

    def full(copy: LedgerCopy, *row: Any) -> None:
        if next(calls) == written:
            raise StorageError("the disk is full")
        write(copy, *row)

    write = LedgerCopy._write
    with copy_in(tmp_path) as copy, monkeypatch.context() as patch:
        patch.setattr(LedgerCopy, "_write", full)
        with pytest.raises(StorageError):
            copy.append(found, payloads)
    with copy_in(tmp_path) as copy:
        rest = found[copy.last_id :]
        copy.append(rest, {number: payload for number, payload in payloads.items() if number not in copy.segments})
        assert {number: copy.read(number) for number in payloads} == payloads
        assert copy.last_id == len(found)
        assert not copy.segments.damage


@pytest.mark.parametrize(
    "row",
    [
        (),
        ("NodeChanged",),
        ("Nobody", 1, 1, 0.0),
        ("Noted", "one", 1, 0.0, "paused", "", "{}"),
        ("Noted", 1, 1, 0.0, "paused", "", "{"),
        ("Noted", 1, 1, 0.0, "paused", "", None),
        ("Noted", 1, 1, 0.0, "paused", "", '{"reason": 3}'),
        ("Noted", 1, 1, 0.0, "paused", "", '{"reason": "x"}', "more"),
        (1, 1, 1, 1, 1, 1, 1),
    ],
)
def test_an_invalid_copied_row_is_refused(row: CopiedRow) -> None:
    with pytest.raises(WireError):
        understood(row)


def test_only_a_rightly_sealed_higher_epoch_supersedes() -> None:
    keys, other = Keys.generate(), Keys.generate()
    own = sealed(keys, "run", 5)
    assert supersedes(sealed(keys, "run", 6), own, keys, "run")
    for term in (
        sealed(keys, "run", 5),
        sealed(keys, "run", 4),
        sealed(keys, "another", 6),
        sealed(other, "run", 6),
        Term(6, own.seal),
        Term(5, own.seal, "z"),
        Term(6, sealed(keys, "run", 6).seal, "z"),
        Term(6),
    ):
        assert not supersedes(term, own, keys, "run")


def test_one_of_two_terms_with_the_same_epoch_prevails() -> None:
    keys = Keys.generate()
    one, other = (sealed(keys, "run", TERM + 1, by) for by in ("a", "b"))
    assert supersedes(other, one, keys, "run")
    assert not supersedes(one, other, keys, "run")
    contact = Contact(1)
    for term, taken in ((one, True), (other, True), (one, False)):
        contact.begin_anew()
        welcome = Welcome("run", "n", contact.greet(), WORKER_SETTINGS, MANIFEST, 1.0, 10.0, term=term)
        assert contact.welcomed(welcome) is taken
