"""The ledger as its writer and its readers see it."""

from __future__ import annotations

import math
import random
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barnraise.account import story
from barnraise.core.errors import CorruptionError, RunDirectoryError, StorageError
from barnraise.core.types import NodeProfile, RowRange, Taken, Transcript
from barnraise.ledger import (
    Assigned,
    Change,
    Decision,
    Judged,
    Ledger,
    LedgerHash,
    LedgerView,
    NodeChanged,
    Noted,
    VersionClosed,
    VersionMade,
    notes,
)
from barnraise.ledger.outcomes import LookedAt
from barnraise.ledger.rows import FORMATS, flat
from barnraise.ledger.view import replay

from ... import decisions as some


def assigned(assignment: int, node: str = "a", **changes: Any) -> Assigned:
    rows = RowRange(0, 8, 16), RowRange(1, 0, 4)
    usual: dict[str, Any] = {"base": 3, "tokens": 1000, "local_steps": 20, "rows": rows, "cursor": 16}
    return some.assigned(float(assignment), assignment, node, **(usual | changes))


def judged(assignment: int, node: str = "a", **changes: Any) -> Judged:
    usual: dict[str, Any] = {"time": float(assignment), "base": 3, "version": 5, "staleness": 2, "tokens": 1000}
    values = usual | {"steps": 20, "loss": 2.5, "num_bytes": 10} | changes
    return some.judged(values.pop("time"), assignment, node, **values)


def a_run() -> list[Decision]:
    """Two nodes, two accepted, one refused, one discarded contribution, two versions of which one is made."""
    profile = NodeProfile(tokens_per_second=1e4, cores=8, device="cuda")
    return [
        NodeChanged(time=0.0, node="a", change=Change.ENROLLED, key="k"),
        NodeChanged(time=1.0, node="b", change=Change.ENROLLED),
        NodeChanged(time=2.0, node="a", change=Change.JOINED, session=7, profile=profile),
        assigned(1, "a"),
        assigned(2, "b"),
        judged(1, "a"),
        judged(2, "b", verdict="refused", reason="stale", loss=math.nan, norm=math.inf, staleness=60),
        Noted(5.0, notes.Evaluated(1, 3.25, 1000)),
        VersionClosed(time=6.0, version=1, contributions=(1,), num_nodes=1, tokens=1000, reason="full"),
        assigned(3, "a", pace=0.25),
        VersionMade(time=7.0, version=1, digest="cd" * 32, delta_bytes=400),
        judged(3, "a", time=8.0, staleness=4, transcript=Transcript(3, 8, True, (Taken(4, 5),))),
        VersionClosed(time=8.5, version=2, contributions=(3,), num_nodes=1, tokens=1000, reason="full"),
        judged(9, "a", time=9.0, verdict="discarded"),
        Noted(9.5, notes.Evaluated(2, 2.25, 2000)),
        Noted(9.75, notes.Evaluated(2, None, 2000)),
        NodeChanged(time=10.0, node="b", change=Change.LEFT, reason="lease ended"),
    ]


def payloads_of(decisions: list[Decision]) -> dict[int, bytes]:
    return {
        item.assignment: b"payload %d" % item.assignment
        for item in decisions
        if isinstance(item, Judged) and item.brings
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


def test_the_schema_has_the_fields_of_the_decisions_as_columns(path: Path) -> None:
    Ledger(path).close()
    with sqlite3.connect(path) as connection:
        columns = {
            form.table: sorted(row[1] for row in connection.execute(f"PRAGMA table_info({form.table})"))
            for form in FORMATS.values()
        }
    expected = {form.table: sorted(form.columns) for kind, form in FORMATS.items() if kind is not VersionMade}
    made = [column for column in FORMATS[VersionMade].columns if column != "version"]
    expected["versions"] = sorted(FORMATS[VersionClosed].columns + made)
    assert columns == expected


def test_the_fields_of_a_group_are_columns() -> None:
    form, decision = FORMATS[Judged], judged(1, codec=2, loss=math.nan)
    row = dict(zip(form.columns, form.to_row(7, 1, decision), strict=True))
    assert (row["base"], row["steps"], row["codec"], row["version"], row["parameters"]) == (3, 20, 2, 5, "[0,10]")
    assert flat(decision).keys() == row.keys() - {"id", "epoch"}
    assert flat(decision)["codec"] == 2


def test_a_reopened_ledger_replays_committed_rows_in_order(path: Path) -> None:
    run = a_run()
    with Ledger(path, run="sat-neo") as ledger:
        assert ledger.commit(run[:9], payloads_of(run[:9])) == 9
        assert ledger.commit(run[9:], payloads_of(run[9:])) == len(run)
        assert ledger.commit([]) == len(run)
    with Ledger(path, run="another") as ledger:
        assert ledger.run == "sat-neo"
        assert ledger.last_id == len(run)
        replayed = list(ledger.replay())
        assert [row_id for row_id, _ in replayed] == list(range(1, len(run) + 1))
        assert repr([decision for _, decision in replayed]) == repr(run)  # NaN differs from itself, its text does not
        assert repr(list(ledger.replay(after_id=10))) == repr(list(zip(range(11, len(run) + 1), run[10:], strict=True)))
        assert ledger.read(3) == b"payload 3"
        assert ledger.compute_hash() == LedgerHash(run).hexdigest()


def test_each_opening_is_an_epoch_and_rows_carry_it(path: Path) -> None:
    for expected in (1, 2, 3):
        with Ledger(path) as ledger:
            assert ledger.epoch == expected
            ledger.commit([Noted(0.0, notes.Paused("alone"))])
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT id, epoch FROM events").fetchall() == [(1, 1), (2, 2), (3, 3)]


def test_a_version_and_its_making_are_one_row(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.commit(a_run(), payloads_of(a_run()))
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT id, version, made_id, made_time, delta_bytes FROM versions").fetchall()
    assert rows == [(9, 1, 11, 7.0, 400), (13, 2, None, None, None)]


def test_a_version_that_never_closed_cannot_be_made(path: Path) -> None:
    with Ledger(path) as ledger:
        with pytest.raises(AssertionError, match="VersionMade: 0 of 1"):
            ledger.commit([Noted(0.0, notes.Advice("x")), VersionMade(time=0.0, version=4, digest="", delta_bytes=0)])
        assert list(ledger.replay()) == []
        assert ledger.commit([Noted(0.0, notes.Advice("x"))]) == 1


def test_a_contribution_is_accepted_once(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.commit([judged(1)], {1: b"first"})
        with pytest.raises(sqlite3.IntegrityError):
            ledger.commit([Noted(0.0, notes.Advice("x")), judged(1)], {1: b"again"})
        ledger.commit([judged(1, verdict="refused", reason="known"), judged(1, verdict="refused", reason="known")])
        assert [row_id for row_id, _ in ledger.replay()] == [1, 2, 3]


def test_an_accepted_contribution_brings_its_payload(path: Path) -> None:
    with Ledger(path) as ledger:
        with pytest.raises(AssertionError, match="payloads of"):
            ledger.commit([judged(1)])
        with pytest.raises(AssertionError, match="payloads of"):
            ledger.commit([judged(1, verdict="refused")], {1: b"x"})


def test_commits_come_from_another_thread_while_a_reader_replays(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.commit([Noted(0.0, notes.Advice("x"))] * 100)
        reader = ledger.replay()
        first = next(reader)
        writer = threading.Thread(target=ledger.commit, args=([Noted(1.0, notes.Advice("x"))] * 100,))
        writer.start()
        writer.join()
        assert len([first, *reader]) == 100  # the reader sees the moment at which it began
        assert len(list(ledger.replay())) == 200


def test_a_missing_row_is_found(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.commit([Noted(0.0, notes.Advice("x"))] * 5)
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM events WHERE id = 3")
    with Ledger(path) as ledger, pytest.raises(CorruptionError, match="row 3 is missing"):
        list(ledger.replay())


def test_a_page_that_only_old_rows_are_on_is_looked_at_before_anything_is_changed(tmp_path: Path) -> None:
    """A controller that continues reads the newest rows alone, and so would not meet it."""
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as ledger:
        for number in range(400):
            ledger.commit([Noted(float(number), notes.Continued())])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'versions'").fetchone()
    content = bytearray(path.read_bytes())
    content[(page - 1) * 4096 : page * 4096] = random.Random(1).randbytes(4096)
    path.write_bytes(content)
    with pytest.raises(CorruptionError, match=r"ledger\.sqlite is damaged: .*barnraise finish"):
        Ledger(path)
    assert path.read_bytes() == content


def test_text_that_is_not_utf8_is_damage(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.commit([Noted(1.0, notes.Paused("alone"))])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE events SET node = CAST(x'ff' AS TEXT)")
        connection.commit()
    with pytest.raises(CorruptionError, match=r"ledger\.sqlite is damaged"):
        list(replay(path))


def test_a_damaged_value_is_found(path: Path) -> None:
    with Ledger(path) as ledger:
        ledger.commit([assigned(1)])
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE assignments SET rows = '[[0, 1'")
    with Ledger(path) as ledger, pytest.raises(CorruptionError, match="row 1 of the ledger's table assignments"):
        list(ledger.replay())


def test_a_file_that_is_no_database_is_reported(path: Path) -> None:
    path.write_bytes(b"not a database, whatever its name says" * 100)
    with pytest.raises(CorruptionError, match=r"ledger\.sqlite is damaged: file is not a database"):
        Ledger(path)
    with pytest.raises(CorruptionError, match=r"ledger\.sqlite is damaged: file is not a database"):
        LedgerView(path)


def test_a_ledger_of_another_schema_is_refused(path: Path) -> None:
    Ledger(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE meta SET value = 99 WHERE key = 'schema'")
    with pytest.raises(RunDirectoryError, match="schema 99, this barnraise reads 2"):
        Ledger(path)
    with pytest.raises(RunDirectoryError, match="schema 99, this barnraise reads 2"):
        LedgerView(path)


def test_a_folder_that_is_missing_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"cannot open .*nowhere/ledger\.sqlite: unable to open .* bytes free"):
        Ledger(tmp_path / "nowhere" / "ledger.sqlite")


def test_the_hash_depends_on_each_decision_and_on_their_order() -> None:
    run = a_run()
    whole = LedgerHash(run).hexdigest()
    assert len(whole) == 64
    assert LedgerHash([*run[1:], run[0]]).hexdigest() != whole
    assert len({LedgerHash(run[:k]).hexdigest() for k in range(len(run) + 1)}) == len(run) + 1


def test_a_view_counts_lapsed_audits(path: Path) -> None:
    told = [notes.Unaudited(3, "3 nodes were asked"), notes.Audited(4, 9, "b", 1.0, 0.0), notes.Unaudited(5, "no")]
    with Ledger(path) as ledger, LedgerView(path) as view:
        ledger.commit([Noted(1.0, note, "a") for note in told])
        assert view.totals().looked_at == LookedAt(anew=1, lapsed=2)
        texts = [line.text for line in story.of_node(view, "a")]
        assert texts[0] == "3: an audit of a's work had no result: 3 nodes were asked"


def test_a_view_counts_what_happened(path: Path) -> None:
    run = a_run()
    with Ledger(path, run="sat-neo") as ledger:
        ledger.commit(run, payloads_of(run))
    with Ledger(path) as ledger, LedgerView(path) as view:
        ledger.commit([Noted(100.0, notes.Paused("alone")), Noted(103.0, notes.Resumed(1, 2))])
        assert (view.run, view.epoch) == ("sat-neo", 2)
        totals = view.totals()
        assert msgspec.structs.asdict(totals) == {
            "version": 1,
            "accepted": 2,
            "refused": 1,
            "discarded": 1,
            "signed": 0,
            "tokens": 2000,
            "num_bytes": 40,
            "contributors": 1,
            "epochs": 2,
            "seconds": 13.0,
            "found": 0,
            "looked_at": LookedAt(),
        }
        a, b = view.nodes()
        assert (a.node, a.change, a.tokens) == ("a", "joined", 2000)
        assert (a.outcomes.assigned, a.outcomes.accepted, a.outcomes.discarded) == (2, 2, 1)
        assert (a.mean_staleness, a.max_staleness, a.seconds) == (8 / 3, 4, 12.0)
        assert (b.node, b.change, b.reason, b.tokens, b.time) == ("b", "left", "lease ended", 0, 10.0)
        assert b.outcomes.refused == 1
        assert view.refusals() == {"stale": 1}
        assert [(row.version, row.num_contributions, row.delta_bytes) for row in view.versions()] == [
            (1, 1, 400),
            (2, 1, None),
        ]
        assert [time for time, _ in view.events(notes.Evaluated)] == [5.0, 9.5, 9.75]
        assert len(list(view.replay())) == len(run) + 2


def test_a_view_of_an_empty_ledger_counts_nothing(path: Path) -> None:
    Ledger(path).close()
    with LedgerView(path) as view:
        assert (view.totals().version, view.totals().accepted, view.totals().seconds) == (-1, 0, 0.0)
        assert (view.nodes(), view.versions(), view.refusals(), view.events(notes.Evaluated)) == ([], [], {}, [])


def test_a_view_neither_writes_nor_begins_an_epoch(path: Path) -> None:
    Ledger(path).close()
    before = path.read_bytes()
    with LedgerView(path) as view:
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            view._connection.execute("DELETE FROM meta")
        assert view.epoch == 1
    assert path.read_bytes() == before


def test_there_is_no_view_of_nothing(path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="no ledger at"):
        LedgerView(path)
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    with pytest.raises(RunDirectoryError, match="is not the ledger of a run"):
        LedgerView(path)


def test_claims_that_no_type_allows_stop_no_replay(path: Path) -> None:
    """An older barnraise may have allowed them; each counts as not made, the others stand."""
    profile = NodeProfile(tokens_per_second=1e4, cores=8, device="cuda")
    joined = NodeChanged(time=0.0, node="a", change=Change.JOINED, session=7, profile=profile)
    with Ledger(path) as ledger:
        ledger.commit([joined])
        with sqlite3.connect(path) as connection:
            connection.execute(
                "UPDATE nodes SET profile = json_set(profile, '$.tokens_per_second', ?, '$.device', ?, '$.old', 1)",
                (-1e300, "c" * 121),
            )
        ((_, replayed),) = ledger.replay()
    assert replayed == msgspec.structs.replace(joined, profile=NodeProfile(cores=8))


def test_findings_are_no_contributions(path: Path) -> None:
    """Nor left over at the end: they were to enter no version."""
    found = {"digest": "", "num_bytes": 0, "codec": -1, "tokens": 0, "steps": 3, "staleness": 0, "seconds": 9.0}
    run = [
        NodeChanged(0.0, "a", "enrolled", key="k"),
        assigned(1),
        assigned(2, kind="evaluate", local_steps=3),
        judged(1),
        judged(2, **found),
        Noted(3.0, notes.LeftOver(1, "stopped")),
    ]
    with Ledger(path) as ledger:
        ledger.commit(run, payloads_of(run))
    with LedgerView(path) as view:
        totals, (node,) = view.totals(), view.nodes()
        assert (totals.accepted, totals.found, totals.discarded, totals.tokens) == (0, 1, 1, 0)
        told = node.outcomes
        assert (told.accepted, told.found, told.discarded, told.open) == (0, 1, 1, 0)
        assert (node.seconds, node.mean_staleness) == (4.0, 2.0)
        assert [piece.outcome for piece in view.assignments()] == ["discarded", "found"]
