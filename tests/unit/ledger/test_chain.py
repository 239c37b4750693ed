"""The hash chain over a ledger's rows: its content, and its continuation with the ledger."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barnraise.core.errors import StorageError
from barnraise.ledger import Ledger, LedgerView, Noted, chain, notes
from barnraise.ledger.chain import GENESIS, Head
from barnraise.ledger.copying import LedgerCopy, RowReader, understood

from .test_ledger import a_run, judged, payloads_of

RUN = a_run()


def commit_all(ledger: Ledger, step: int = 3) -> None:
    """Write several commits to a ledger."""
    for start in range(0, len(RUN), step):
        piece = RUN[start : start + step]
        ledger.commit(piece, payloads_of(piece))


def recomputed(path: Path) -> list[str]:
    """Return the head after each row, as a reader of the file alone computes it."""
    with closing(sqlite3.connect(path)) as connection:
        found: list[str] = []
        for _, form, columns in chain.rows_after(connection, 0):
            before = bytes.fromhex(found[-1]) if found else GENESIS
            found.append(chain.link(before, form, columns).hex())
        return found


def kept(path: Path) -> list[Head]:
    with closing(sqlite3.connect(path)) as connection:
        return list(chain.heads(connection))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.sqlite"
    with Ledger(path, run="run") as ledger:
        commit_all(ledger)
    return path


def test_each_commit_has_a_head_of_all_rows_so_far(path: Path) -> None:
    heads = recomputed(path)
    assert kept(path) == [Head(rows, heads[rows - 1]) for rows in (*range(3, len(RUN), 3), len(RUN))]
    with LedgerView(path) as view:
        assert view.head == Head(len(RUN), heads[-1])
    assert len(set(heads)) == len(RUN)


def test_a_head_is_what_the_docs_say(tmp_path: Path) -> None:
    """The test computes the chain by hand, as a reader of the file without barnraise does."""
    path = tmp_path / "ledger.sqlite"
    with Ledger(path, run="run") as ledger:
        ledger.commit([Noted(-0.0, notes.Paused("why")), judged(3, verdict="refused", loss=float("nan"), weight=2)])
        head = ledger.head
    event = ["events", {"detail": '{"reason":"why"}', "epoch": 1, "id": 1, "kind": "paused", "node": "", "time": 0.0}]
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        row = dict(connection.execute("SELECT * FROM contributions").fetchone())
    defaults = {"codec": -1, "transcript": None, "signature": "", "scale": 1.0, "result": "", "trust": None}
    assert {name: row.pop(name) for name in defaults} == defaults
    digest = GENESIS
    for content in (event, ["contributions", dict(sorted(row.items()))]):
        digest = hashlib.sha256(digest + msgspec.msgpack.encode(content)).digest()
    assert head == Head(2, digest.hex())
    assert row["loss"] is None


def test_every_value_of_every_row_counts(path: Path) -> None:
    before = recomputed(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        changed = 0
        tables = {form.table for _, form, _ in chain.rows_after(connection, 0)}
        for table in tables:
            names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            for rowid, *values in connection.execute(f"SELECT rowid, * FROM {table}").fetchall():
                for name, value in zip(names, values, strict=True):
                    if value is None or name in ("id", "made_id"):
                        continue
                    other = value + "x" if isinstance(value, str) else -1.5 if isinstance(value, float) else value + 100
                    connection.execute("BEGIN")
                    connection.execute(f"UPDATE {table} SET {name} = ? WHERE rowid = ?", (other, rowid))
                    digest, row_ids = GENESIS, 0
                    for _, form, columns in chain.rows_after(connection, 0):
                        digest, row_ids = chain.link(digest, form, columns), row_ids + 1
                    assert digest.hex() != before[-1], (table, name)
                    connection.execute("ROLLBACK")
                    changed += 1
    assert changed > 100


def test_a_reopened_ledger_continues_its_chain(path: Path) -> None:
    before = kept(path)
    with Ledger(path) as ledger:
        assert ledger.head == before[-1]
        ledger.commit([Noted(11.0, notes.Continued())])
        head = ledger.head
    assert kept(path) == [*before, head]
    assert recomputed(path)[-1] == head.digest


def test_a_commit_that_fails_leaves_it(path: Path) -> None:
    with Ledger(path) as ledger:
        before = ledger.head
        ledger._connection.execute(
            "CREATE TEMP TRIGGER full BEFORE INSERT ON main.chain BEGIN SELECT raise(ABORT, ''); END"
        )
        with pytest.raises((StorageError, sqlite3.Error)):
            ledger.commit([Noted(11.0, notes.Continued())])
        assert (ledger.head, ledger.last_id) == (before, len(RUN))
        ledger._connection.execute("DROP TRIGGER full")
        ledger.commit([Noted(12.0, notes.Continued())])
    assert kept(path)[-1].digest == recomputed(path)[-1]


def forget_chain(path: Path, after: int = 0) -> None:
    """Change a ledger as an older barnraise leaves it: without a chain, or with further rows."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM chain WHERE id > ?", (after,))
        connection.commit()
        if not after:
            connection.execute("DROP TABLE chain")


@pytest.mark.parametrize("after", [0, 6])
def test_rows_in_no_chain_are_taken_up_by_a_controller_and_no_reader(path: Path, after: int) -> None:
    whole = recomputed(path)
    forget_chain(path, after)
    with LedgerView(path) as view:
        assert view.head == Head(after, whole[after - 1] if after else GENESIS.hex())
    with Ledger(path) as ledger:
        assert ledger.head == Head(len(RUN), whole[-1])
    assert kept(path)[-1] == Head(len(RUN), whole[-1])


def test_a_column_that_is_thought_of_later_changes_no_head(path: Path) -> None:
    whole = recomputed(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE contributions DROP COLUMN codec")
    Ledger(path).close()
    assert recomputed(path) == whole


@pytest.mark.parametrize("cut", [1, 4, 8])
def test_a_copy_has_the_same_chain_and_continues_it(tmp_path: Path, path: Path, cut: int) -> None:
    reader = RowReader(path)
    rows = [understood(row) for row in reader.after(0, 1 << 20)]
    reader.close()
    payloads = payloads_of(RUN)

    def append(copy: LedgerCopy, piece: Sequence[Any]) -> None:
        numbers = {row.decision.assignment for row in piece if getattr(row.decision, "brings", False)}
        copy.append(piece, {number: payloads[number] for number in numbers})

    place = tmp_path / "copy.sqlite", tmp_path / "copies"
    with LedgerCopy(*place, run="run") as copy:
        append(copy, rows[:cut])
    with LedgerCopy(*place, run="run") as copy:
        append(copy, rows[cut:])
        assert copy.head == kept(path)[-1]
    assert recomputed(place[0]) == recomputed(path)
    with Ledger(*place) as taken_over:
        taken_over.commit([Noted(11.0, notes.Resumed(1, 2))])
        assert taken_over.head.digest == recomputed(place[0])[-1]
        assert taken_over.head.rows == len(RUN) + 1
