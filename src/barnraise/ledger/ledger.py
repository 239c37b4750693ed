"""The ledger of a run, a SQLite database to which the controller commits its decisions in groups."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from barnraise.core.files import fsync_directory
from barnraise.core.types import Unmasked, name_of
from barnraise.ledger import chain, schema
from barnraise.ledger.decisions import AnyDecision, Decision, Judged, Noted
from barnraise.ledger.disk import damaged, storage_errors
from barnraise.ledger.notes import SomeNote, Voided, kind_of
from barnraise.ledger.rows import FORMATS, LedgerHash, Row, RowFormat
from barnraise.ledger.segments import SEGMENT_BYTES, PayloadBytes, Position, Segments
from barnraise.ledger.view import read_meta, replay

_PRAGMAS = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA journal_size_limit = 16777216;
"""


class Ledger:
    """The ledger for its one writer, the controller; the run directory's lock excludes others.

    Opening it begins a new epoch. `commit` and `close` are for one thread at a time; everything else, `segments` (which
    forgets payloads as checkpoints make them superfluous) included, may be called from any thread.
    """

    def __init__(
        self, path: Path, segments: Path | None = None, *, run: str = "", segment_bytes: int = SEGMENT_BYTES
    ) -> None:
        """Open the ledger at `path`, made if it is missing, and the segments beside it.

        `run` is written into a new ledger and only read from an existing one. Ledger and segments are compared before
        either is changed. Raises RunDirectoryError when it was made by another version of barnraise, CorruptionError
        when the database is damaged or is older than the segments, StorageError.
        """
        self.path = path
        with storage_errors(path, "open"):
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10.0)
        try:
            self._require_sound()
            meta = read_meta(self._connection, path) if self._exists() else {}
            self._durable = Position(meta.get("segment_number", 0), meta.get("segment_bytes", 0))
            last_assignment = self._newest("assignment", "assignments") if meta else 0
            self.segments = Segments(
                segments or path.parent / "segments",
                self._durable,
                last_assignment=last_assignment,
                segment_bytes=segment_bytes,
            )
            with storage_errors(path, "open"):
                self._connection.executescript(_PRAGMAS)
                if not meta:
                    self._create(run)
            self.run: str = meta.get("run", run)
            self.epoch: int = meta.get("epoch", 0) + 1
            self.last_id: int = max(self._newest(form.id_column, form.table) for form in FORMATS.values())
            with transaction(self._connection, path):
                schema.complete(self._connection)
                self.head = chain.take_up(self._connection)
                self._set_meta(epoch=self.epoch, schema=schema.VERSION)
        except BaseException:
            self._connection.close()
            raise

    def commit(self, decisions: Sequence[Decision], payloads: Mapping[int, PayloadBytes] | None = None) -> int:
        """Make decisions durable, all or none, in their order; returns the id of the last.

        `payloads` holds, by assignment, those of the accepted contributions among them: they are on disk before the
        rows are. Raises StorageError when the disk fails (full, over quota): none of the decisions is in the ledger
        then, and the same batch, or another, may be committed once there is room.
        """
        payloads = payloads or {}
        accepted = {item.assignment for item in decisions if isinstance(item, Judged) and item.brings}
        assert payloads.keys() == accepted, f"payloads of {sorted(payloads)} for contributions {sorted(accepted)}"
        if decisions:
            durable = self.segments.append(payloads)
            self.head = self._insert(decisions, durable)
            self._durable = durable
            self.last_id += len(decisions)
        return self.last_id

    def replay(self, after_id: int = 0) -> Iterator[tuple[int, AnyDecision]]:
        """Yield all decisions with a larger id than `after_id`, in order, as of the time of the first `next`."""
        return replay(self.path, after_id)

    def newest(self, kind: type[SomeNote]) -> SomeNote | None:
        """Return the last note of a kind."""
        form = FORMATS[Noted]
        query = form.read.replace("WHERE", "WHERE kind = ? AND") + " DESC LIMIT 1"
        with storage_errors(self.path, "read"):
            row = self._connection.execute(query, (kind_of(kind), 0)).fetchone()
        noted = form.from_row(row) if row else None
        return noted.note if isinstance(noted, Noted) and isinstance(noted.note, kind) else None

    def merged(self, after_version: int) -> dict[int, tuple[int, ...]]:
        """Return version -> the assignments of its contributions, for versions later than `after_version`.

        Those that brought the sums of its masks are among them. Versions may still be unmade; voided contributions are
        left out.
        """
        with storage_errors(self.path, "read"):
            rows = self._connection.execute(
                "SELECT version, contributions FROM versions WHERE version > ? ORDER BY version", (after_version,)
            ).fetchall()
            notes = self._connection.execute("SELECT detail FROM events WHERE kind = ?", (kind_of(Voided),)).fetchall()
            sums = self._connection.execute(
                "SELECT base + 1, assignment FROM contributions "
                "WHERE result = ? AND verdict = 'accepted' AND base >= ?",
                (name_of(Unmasked), after_version),
            ).fetchall()
        void = {msgspec.json.decode(detail)["assignment"] for (detail,) in notes}
        found = {
            version: tuple(number for number in msgspec.json.decode(numbers) if number not in void)
            for version, numbers in rows
        }
        for version, assignment in sums:
            found[version] = (*found.get(version, ()), assignment)
        return found

    def compute_hash(self) -> str:
        """Return the hash of all decisions; equal to a `LedgerHash` that was updated with each of them."""
        return LedgerHash(decision for _, decision in self.replay()).hexdigest()

    def read(self, assignment: int) -> bytes:
        """Return the payload of an accepted contribution.

        Raises CorruptionError when it is damaged or not kept.
        """
        return self.segments.read(assignment)

    def close(self) -> None:
        """Close files and connection.

        Nothing is lost without it: a killed controller closes nothing.
        """
        self.segments.close()
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _require_sound(self) -> None:
        """Raise CorruptionError when a page of the database is damaged, also one that a resume would not read.

        Otherwise the run would continue, and could be neither reported on nor finished. About a second for each GB.
        """
        with storage_errors(self.path, "read"):
            (told,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        if told != "ok":
            raise damaged(self.path, " ".join(str(told).split()))

    def _exists(self) -> bool:
        with storage_errors(self.path, "open"):
            found = self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone()
        return found is not None

    def _create(self, run: str) -> None:
        meta = {"schema": schema.VERSION, "run": run, "epoch": 0, "segment_number": 0, "segment_bytes": 0}
        with transaction(self._connection, self.path):
            schema.create(self._connection)
            self._connection.executemany("INSERT INTO meta (key, value) VALUES (?, ?)", meta.items())
        fsync_directory(self.path.parent)

    def _newest(self, column: str, table: str) -> int:
        with storage_errors(self.path, "read"):
            return int(self._connection.execute(f"SELECT max({column}) FROM {table}").fetchone()[0] or 0)

    def _insert(self, decisions: Sequence[Decision], durable: Position) -> chain.Head:
        rows: defaultdict[type[Decision], list[Row]] = defaultdict(list)
        linked: list[tuple[RowFormat, Sequence[Any]]] = []
        for row_id, decision in enumerate(decisions, self.last_id + 1):
            form = FORMATS[type(decision)]
            columns = form.to_columns(row_id, self.epoch, decision)
            linked.append((form, columns))
            rows[type(decision)].append(form.written(columns))
        head = chain.extended(self.head, linked)
        with transaction(self._connection, self.path):
            for kind, form in FORMATS.items():
                if kind in rows:
                    written = self._connection.executemany(form.write, rows[kind]).rowcount
                    assert written == len(rows[kind]), f"{kind.__name__}: {written} of {len(rows[kind])} rows written"
            if durable != self._durable:
                self._set_meta(segment_number=durable.number, segment_bytes=durable.offset)
            chain.keep(self._connection, head)
        return head

    def _set_meta(self, **values: Any) -> None:
        self._connection.executemany(
            "UPDATE meta SET value = ? WHERE key = ?", [(value, key) for key, value in values.items()]
        )


@contextmanager
def transaction(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """Run the body as a transaction; a failing disk is a StorageError."""
    with storage_errors(path):
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # SQLite may have rolled back by itself
                connection.execute("ROLLBACK")
            raise
