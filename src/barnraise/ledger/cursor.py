"""A cursor over a ledger's rows: each call reads the rows that were committed since the last one, and no others."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import msgspec

from barnraise.ledger.decisions import AnyDecision, Decision, Noted
from barnraise.ledger.disk import storage_errors
from barnraise.ledger.note import Note, kind_of
from barnraise.ledger.rows import FORMATS

MARKED = 64
"""Rows in a mark, beside the chain's head."""

BATCH = 8192
"""Row ids that are read at a time: what is read is in memory, and no longer holds up the ledger's writer."""


class Span(NamedTuple):
    """The times of the first and of the last of some rows of one controller (`epoch`)."""

    epoch: int
    first: float
    last: float


class Batch(NamedTuple):
    """The rows up to the id `until`, in order: those of the kinds that were asked for, and the times of all."""

    until: int
    rows: list[tuple[int, AnyDecision]]
    spans: list[Span]


class Cursor:
    """Reads a ledger from row `after` on, again and again. It stops between two commits, never within one."""

    def __init__(
        self, connection: sqlite3.Connection, path: Path, kinds: Iterable[type[Decision | Note]], after: int = 0
    ) -> None:
        """`kinds` are decisions other than notes, and kinds of notes; no other rows are decoded."""
        self.position = after
        self._connection, self._path = connection, path
        wanted = set(kinds)
        notes = sorted(kind_of(kind) for kind in wanted if issubclass(kind, Note))
        self._queries = []
        for decision, form in FORMATS.items():
            if decision is Noted and notes:
                # Without the sign SQLite would take the index of kinds, and sort all rows of each kind.
                also = f" AND +kind IN ({', '.join(map(repr, notes))})"
            elif decision in wanted:
                also = ""
            else:
                continue
            query = form.read.replace(" ORDER", f" AND {form.id_column} <= ?{also} ORDER")
            self._queries.append((query, form))

    def new(self) -> Iterator[Batch]:
        """Read the rows since the last call that are committed when this call begins.

        Raises StorageError, and CorruptionError for a row that is damaged.
        """
        newest = newest_id(self._connection, self._path)
        while self.position < newest:
            until = min(self.position + BATCH, newest)
            batch = self._read(until)
            self.position = until
            yield batch

    def _read(self, until: int) -> Batch:
        limits = self.position, until
        rows: list[tuple[int, AnyDecision]] = []
        with storage_errors(self._path, "read"):
            cursor = self._connection.cursor()
            cursor.row_factory = None
            for query, form in self._queries:
                rows += [(row[0], form.from_row(row)) for row in cursor.execute(query, limits).fetchall()]
            spans = [Span(*row) for row in cursor.execute(_SPANS, limits * len(_TABLES))]
        rows.sort(key=itemgetter(0))
        return Batch(until, rows, spans)


_encode = msgspec.msgpack.Encoder().encode

_TABLES = sorted({form.table for form in FORMATS.values()})

_SPANS = " UNION ALL ".join(
    f"SELECT epoch, min(time), max(time) FROM {table} WHERE id > ? AND id <= ? AND time IS NOT NULL GROUP BY epoch"
    for table in _TABLES
)
"""A version counts with the time at which its buffer closed."""


def newest_id(connection: sqlite3.Connection, path: Path) -> int:
    """The id of the last row that was committed, 0 when there is none."""
    with storage_errors(path, "read"):
        connection.execute("BEGIN")  # one snapshot: its last row ends a commit
        try:
            return max(_largest(connection, form.id_column, form.table) for form in FORMATS.values())
        finally:
            connection.execute("COMMIT")


def mark(connection: sqlite3.Connection, path: Path, row_id: int) -> str:
    """Return a digest that tells a ledger's rows up to `row_id` from those of another ledger.

    It is of the chain's head there, where the ledger keeps one, and of the last rows as they stand: a ledger that was
    continued from an older copy has another one.
    """
    found = hashlib.sha256()
    with storage_errors(path, "read"):
        heads = connection.execute("SELECT head FROM chain WHERE id = ?", (row_id,))
        found.update(_encode([tuple(row) for row in heads]))
        for form in FORMATS.values():
            query = f"SELECT {', '.join(form.columns)} FROM {form.table} WHERE {form.id_column} > ? AND "
            query += f"{form.id_column} <= ? ORDER BY {form.id_column}"
            rows = connection.execute(query, (row_id - MARKED, row_id))
            found.update(_encode([form.table, [tuple(row) for row in rows]]))
    return found.hexdigest()


def _largest(connection: sqlite3.Connection, column: str, table: str) -> int:
    (found,) = connection.execute(f"SELECT max({column}) FROM {table}").fetchone()
    return int(found or 0)
