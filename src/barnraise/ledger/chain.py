"""The hash chain over a ledger's rows: a reader who has noted a head can detect later changes of earlier rows.

    h_0 = 32 zero bytes
    h_i = SHA-256(h_{i-1}, MessagePack of [table, {column: value, ...}])      row i, its columns in the order of names

Values are as stored in the table. A column that has a default (`schema.sql`) counts where it holds another value, so a
column that a later barnraise adds changes no head. A version's two halves are two rows, each under the name of its id.
A row's hash depends on rows alone: a standby's copy has the same chain, and continues it.

The table `chain` has one head a commit. Rows that are in none (of a ledger from before there was a chain) are added
when a controller resumes the run.
"""

from __future__ import annotations

import hashlib
import heapq
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec

from barnraise.core.errors import CorruptionError
from barnraise.ledger import schema
from barnraise.ledger.rows import FORMATS, Row, RowFormat

GENESIS = bytes(32)
"""The head of an empty chain."""

_encode = msgspec.msgpack.Encoder().encode

_NONE = object()


class Head(NamedTuple):
    """The chain's head after `rows` rows, in hexadecimal."""

    rows: int
    digest: str


BEGINNING = Head(0, GENESIS.hex())


class Break(NamedTuple):
    """A place where rows do not lead to a head that the ledger keeps."""

    first: int
    last: int
    head: str  # the kept head after the last of them
    rows: bool  # whether the rows are changed; else the head is

    def __str__(self) -> str:
        if not self.rows:
            return f"the head of its hash chain after row {self.last} is another than the rows lead to"
        place = f"row {self.first}" if self.first == self.last else f"one of the rows {self.first} to {self.last}"
        return f"{place} is missing, or is not as it was committed: its hash chain does not hold"


class _Place(NamedTuple):
    """The place of a column's value in a row, and its conversion."""

    name: str
    position: int
    real: bool
    default: Any  # _NONE: there is none


def link(head: bytes, form: RowFormat, columns: Sequence[Any]) -> bytes:
    """Return the head after a row of this form, whose `columns` are in its order.

    >>> form = next(iter(FORMATS.values()))
    >>> columns = [1, 1, float("nan"), "a", "left", *[None] * len(form.columns)][: len(form.columns)]
    >>> link(GENESIS, form, columns) == link(GENESIS, form, [1, 1, None, *columns[3:]])
    True
    """
    told: dict[str, Any] = {}
    for name, position, real, default in _places(form):
        value = columns[position]
        if real and value is not None:
            value = None if value != value else float(value) + 0.0  # SQLite keeps neither NaN nor the sign of zero
        if default is _NONE or value != default:
            told[name] = value
    return hashlib.sha256(head + _encode([form.table, told])).digest()


@cache
def _places(form: RowFormat) -> tuple[_Place, ...]:
    found = {column.name: column for column in schema.columns_of(form.table)}
    defaults = schema.defaults_of(form.table)
    names = sorted(form.columns)
    return tuple(
        _Place(name, form.columns.index(name), found[name].type == "REAL", defaults.get(name, _NONE)) for name in names
    )


def rows_after(connection: sqlite3.Connection, row_id: int) -> Iterator[tuple[int, RowFormat, Row]]:
    """Yield the rows with a larger id, in order: id, form, and columns as stored."""
    return heapq.merge(*(_read(connection, form, row_id) for form in FORMATS.values()), key=lambda row: row[0])


def heads(connection: sqlite3.Connection, after: int = 0) -> Iterator[Head]:
    """Yield the kept heads after more than `after` rows, the oldest first."""
    for rows, digest in map(tuple, connection.execute("SELECT id, head FROM chain WHERE id > ? ORDER BY id", (after,))):
        yield Head(rows, digest)


def newest(connection: sqlite3.Connection) -> Head:
    """Return the last head that the ledger keeps."""
    row = connection.execute("SELECT id, head FROM chain ORDER BY id DESC LIMIT 1").fetchone()
    return Head(*tuple(row)) if row else BEGINNING


def keep(connection: sqlite3.Connection, head: Head) -> None:
    """Store a head in the ledger, in the transaction of its rows."""
    connection.execute("INSERT INTO chain (id, head) VALUES (?, ?)", head)


def take_up(connection: sqlite3.Connection) -> Head:
    """Return the head after all rows, and add rows that were in no chain.

    For a transaction.
    """
    before = newest(connection)
    rows, digest = before.rows, bytes.fromhex(before.digest)
    for rows, form, columns in rows_after(connection, before.rows):  # noqa: B007
        digest = link(digest, form, columns)
    after = Head(rows, digest.hex())
    if after.rows > before.rows:
        keep(connection, after)
    return after


def extended(head: Head, rows: Iterable[tuple[RowFormat, Sequence[Any]]]) -> Head:
    """Return the head after further rows."""
    number, digest = head.rows, bytes.fromhex(head.digest)
    for form, columns in rows:
        number, digest = number + 1, link(digest, form, columns)
    return Head(number, digest.hex())


class Comparison:
    """A comparison of rows, one after another, with the kept heads.

    If rows do not lead to a head, they are changed, or the head is: the next head, which continues from one of both,
    tells which. Until then they are `suspect`.
    """

    def __init__(self, kept: Iterable[Head], since: Head = BEGINNING) -> None:
        self.last, self.digest = since.rows, bytes.fromhex(since.digest)  # after the rows so far
        self.first = since.rows + 1  # first row without a head yet
        self.compared = 0
        self.suspect: Break | None = None
        self._other: bytes | None = None  # the chain's head if the head before, not its rows, were changed
        self._kept = iter(kept)
        self._next = next(self._kept, None)

    @property
    def head(self) -> Head:
        """Return the head that the rows so far lead to."""
        return Head(self.last, self.digest.hex())

    def take(self, row_id: int, form: RowFormat, columns: Sequence[Any]) -> Iterator[Break]:
        """Yield the breaks that the next row reveals."""
        self.digest = link(self.digest, form, columns)
        self._other = link(self._other, form, columns) if self._other is not None else None
        self.last = row_id
        while self._next is not None and self._next.rows < row_id:
            self._next = next(self._kept, None)
        if self._next is not None and self._next.rows == row_id:
            kept, self._next = self._next, next(self._kept, None)
            yield from self._compare(kept)

    def end(self) -> Iterator[Break]:
        """Yield the breaks at the end of all rows."""
        if self.suspect is not None:
            yield self.suspect
        for kept in self._rest():
            yield Break(self.last + 1, kept.rows, kept.digest, rows=True)

    def _compare(self, kept: Head) -> Iterator[Break]:
        self.compared += 1
        first, self.first = self.first, self.last + 1
        ours, other = self.digest.hex(), self._other.hex() if self._other is not None else ""
        if self.suspect is not None and kept.digest in (ours, other):
            yield self.suspect._replace(rows=kept.digest == other)
            if kept.digest == other and self._other is not None:
                self.digest = self._other
            self.suspect = self._other = None
        elif kept.digest != ours:
            if self.suspect is not None:
                yield self.suspect
            self.suspect = Break(first, self.last, kept.digest, rows=True)
            self._other = _bytes(kept.digest)

    def _rest(self) -> Iterator[Head]:
        """Yield the last of the heads that are kept for more rows than there are."""
        newest = self._next
        for newest in self._kept:  # noqa: B007
            pass
        self._next = None
        if newest is not None:
            yield newest


def checked(connection: sqlite3.Connection, since: Head = BEGINNING) -> Head:
    """Return the head after all rows, once those after `since` lead to each kept head.

    Raises CorruptionError.
    """
    comparison = Comparison(heads(connection, since.rows), since)
    for row in rows_after(connection, since.rows):
        for broken in comparison.take(*row):
            raise CorruptionError(str(broken))
    for broken in comparison.end():
        raise CorruptionError(str(broken))
    return comparison.head


def _bytes(digest: str) -> bytes:
    """Return the bytes of a head; for malformed ones, other bytes."""
    try:
        return bytes.fromhex(digest)
    except ValueError:
        return GENESIS


def _read(connection: sqlite3.Connection, form: RowFormat, row_id: int) -> Iterator[tuple[int, RowFormat, Row]]:
    cursor = connection.cursor()
    cursor.row_factory = None
    query = f"SELECT {', '.join(form.columns)} FROM {form.table} WHERE {form.id_column} > ? ORDER BY {form.id_column}"
    for row in cursor.execute(query, (row_id,)):
        yield row[0], form, row
