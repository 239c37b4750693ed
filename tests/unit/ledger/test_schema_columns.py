"""A ledger that lacks a newer column is read, and continued."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from barnraise.account import story
from barnraise.controller.state import saved
from barnraise.controller.tensors.recovery import replay
from barnraise.core.errors import RunDirectoryError
from barnraise.core.types import AnyTask
from barnraise.ledger import Judged, Ledger, LedgerView, schema
from barnraise.ledger.records import Place, pack_header
from barnraise.ledger.rows import FORMATS, fields_of

from ..controller.tensors.test_recovery import Run
from .test_ledger import a_run, judged, payloads_of

TABLES = [*sorted({form.table for form in FORMATS.values()}), "chain", "meta"]


def forget(path: Path, column: str = "codec") -> None:
    """As if the ledger were from before the column."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"ALTER TABLE contributions DROP COLUMN {column}")
        assert column not in columns(connection)


def columns(connection: sqlite3.Connection) -> list[str]:
    return [row[1] for row in connection.execute("PRAGMA main.table_info(contributions)")]


def codecs(decisions: object) -> list[int]:
    return [d.claim.codec for _, d in decisions if isinstance(d, Judged)]  # type: ignore[attr-defined]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path, run = tmp_path / "ledger.sqlite", a_run()
    with Ledger(path, run="old") as ledger:
        ledger.commit(run, payloads_of(run))
    forget(path)
    return path


def test_a_changed_form_of_rows_has_a_new_schema_version() -> None:
    """Where this fails, raise `schema.VERSION`: a barnraise of the version before takes newer rows for damage.

    If this barnraise still reads the rows of the version before, add that version to `schema.READABLE`.
    """
    headers = [pack_header(7, Place(1, 28, 5, 0x01020304), first).hex() for first in (True, False)]
    required = {table: [c.name for c in schema.columns_of(table) if c.default is None] for table in TABLES}
    form = hashlib.sha256(repr((headers, required)).encode()).hexdigest()[:16]
    assert (schema.VERSION, form) == (3, "5502c7078a4e19cf")


def test_a_ledger_of_the_version_before_is_read_and_upgraded(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    Ledger(path, run="old").close()
    set_schema(path, 2)
    with LedgerView(path) as view:
        assert view.run == "old"
    with Ledger(path):
        pass
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone() == (schema.VERSION,)
    for other in (1, schema.VERSION + 1):
        set_schema(path, other)
        with pytest.raises(RunDirectoryError, match=rf"has ledger schema {other}, this barnraise reads 2 to 3"):
            Ledger(path)


def set_schema(path: Path, version: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE meta SET value = ? WHERE key = 'schema'", (version,))
        connection.commit()


def test_a_columns_default_is_its_fields() -> None:
    """So an old row says what a decision without that field says."""
    found = 0
    for form in FORMATS.values():
        fields = {field.name: field for field in fields_of(form.decision)}
        with closing(sqlite3.connect(":memory:")) as connection:
            schema.create(connection)
            for _, name, _, _, default, _ in connection.execute(f"PRAGMA table_info({form.table})").fetchall():
                if default is not None and name in fields:
                    value = connection.execute(f"SELECT {default}").fetchone()[0]
                    assert value == fields[name].default, f"{form.table}.{name}"
                    found += 1
    assert found


def test_readers_take_the_default_and_change_nothing(old: Path) -> None:
    with LedgerView(old) as view:
        assert codecs(view.replay()) == [-1] * 4
        assert codecs(view.find(Judged, "node = ? AND codec < 0", "b")) == [-1]
        assert (view.totals().accepted, view.totals().refused, len(view.versions())) == (2, 1, 2)
        assert [node.outcomes.accepted for node in view.nodes()] == [2, 0]
        assert view.assignments()
    with closing(sqlite3.connect(old)) as connection:
        assert "codec" not in columns(connection)


def test_a_controller_adds_the_column_while_others_read(old: Path) -> None:
    with LedgerView(old) as view:
        before = view.totals()
        with Ledger(old) as ledger:
            new = judged(20, verdict="discarded", codec=3)
            ledger.commit([new])
            assert codecs(ledger.replay()) == [-1, -1, -1, -1, 3]
            assert list(ledger.replay())[-1][1] == new
        assert view.totals().discarded == before.discarded + 1
        assert codecs(view.find(Judged, "codec >= 0")) == [3]
    with closing(sqlite3.connect(old)) as connection:
        assert columns(connection)[-1] == "codec"
    Ledger(old).close()  # which lacks nothing now


class Leaving(Run):
    """Every third contribution is in the codec of residuals, as of a worker that leaves."""

    def codec_of(self, task: AnyTask) -> int:
        return int(task.id % 3 == 0)


@pytest.mark.parametrize("old", [False, True])
def test_versions_of_contributions_in_several_codecs_are_made_again(tmp_path: Path, old: bool) -> None:
    run = Leaving(tmp_path)
    checkpoint = run.get_ahead()
    version, digest = run.server.version, run.server.digest
    assert version > checkpoint
    assert {0, 1} == set(codecs(run.ledger.replay()))
    run.kill()
    if old:
        forget(tmp_path / "ledger.sqlite")
        with LedgerView(tmp_path / "ledger.sqlite") as view:
            assert "accepted" in story.of_assignment(view, 1)[-1].text + story.of_node(view, "a")[-1].text
    again = Leaving(tmp_path, run.workers)
    assert [made.version for made in again.made][-1] == version
    assert again.server.digest == digest
    assert again.found.state.works == run.machine.state.works
    assert again.to_the_end()
    expected = {-1, 0, 1} if old else {0, 1}
    assert set(codecs(again.ledger.replay())) == expected
    again.kill()


def test_a_checkpoint_tells_its_layout_by_all_that_its_state_is_made_of() -> None:
    layout = saved._layout(saved.Saved)
    assert {"State", "NodeState", "Speed", "NodeProfile", "Work", "Terms", "Held", "Cohort"} <= layout.keys()
    assert ("contributions", "tuple[barnraise.controller.state.actions.Held, ...]") in layout["Slot"]


def test_a_checkpoints_state_of_another_form_is_left_for_the_ledger(tmp_path: Path) -> None:
    """Contributions in a slot were pairs once."""
    run = Run(tmp_path)
    run.go_on(10)
    assert any(slot.contributions for slots in run.machine.state.buffer.slots.values() for slot in slots.values())
    kept = msgspec.msgpack.decode(saved.encode(run.machine.state, run.now))
    for slot in kept["slots"]:
        slot["contributions"] = [held[:2] for held in slot["contributions"]]
    state = msgspec.msgpack.encode(kept)
    assert saved.decode(state) is None
    run.checkpoint(state)
    run.kill()
    again = Run(tmp_path)
    assert again.server.digest == run.server.digest
    assert replay(again.ledger).state.buffer.slots == run.machine.state.buffer.slots
    again.kill()
