"""Copies of a ledger: its rows are read as stored, and appended elsewhere under the same ids and epochs."""

from __future__ import annotations

import hashlib
import heapq
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import CorruptionError, WireError
from barnraise.ledger import chain
from barnraise.ledger.decisions import AnyDecision, Judged, Noted
from barnraise.ledger.disk import storage_errors
from barnraise.ledger.ledger import Ledger, transaction
from barnraise.ledger.notes import Voided, kind_of
from barnraise.ledger.rows import FORMATS, RowFormat
from barnraise.ledger.segments import SEGMENT_BYTES, PayloadBytes
from barnraise.ledger.view import connect_read_only

CopiedRow: TypeAlias = tuple[int | float | str | None, ...]
"""The name of a kind of decision, then the columns of its row: id and epoch first."""

TERM = 1 << 20
"""Epochs between a controller and the copy that takes over from it.

The controller can restart this many times before it would count as later than the copy.
"""

_FORMS: dict[str, RowFormat] = {decision.__name__: form for decision, form in FORMATS.items()}
_AT_ONCE = 2000
_UNCHECKED = 20_000  # rows, at most, so that a takeover need not check many: a third of a second
_MALFORMED = (
    CorruptionError,
    *MALFORMED,
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
)


class DecodedRow(NamedTuple):
    """A row of another ledger, with its decision."""

    row: CopiedRow
    id: int
    decision: AnyDecision


class RowReader:
    """Reads the rows of a ledger to which another connection may write.

    For one thread at a time.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = connect_read_only(path)
        self._connection.row_factory = None

    def after(self, row_id: int, num_bytes: int) -> tuple[CopiedRow, ...]:
        """Return the rows that follow `row_id`, without a gap, about `num_bytes` bytes of them.

        At least one, unless there is none.
        """
        found: list[CopiedRow] = []
        size = 0
        with storage_errors(self._path, "read"):
            self._connection.execute("BEGIN")
            try:
                rows = heapq.merge(*(self._read(name, row_id) for name in _FORMS), key=_id_of)
                for expected, row in enumerate(rows, row_id + 1):
                    size += sum(len(value) if isinstance(value, str) else 9 for value in row)
                    if row[1] != expected or (found and size > num_bytes):
                        break
                    found.append(row)
            finally:
                self._connection.execute("COMMIT")
        return tuple(found)

    def tail(self, row_id: int) -> str | None:
        """Return a digest of the row with this id; None when there is none."""
        rows = self.after(row_id - 1, 0) if row_id > 0 else ()
        return hashlib.sha256(msgspec.msgpack.encode(rows[0])).hexdigest() if rows else None

    def close(self) -> None:
        self._connection.close()

    def _read(self, name: str, after_id: int) -> Iterator[CopiedRow]:
        form = _FORMS[name]
        query = (
            f"SELECT {', '.join(form.columns)} FROM {form.table} WHERE {form.id_column} > ? "
            f"ORDER BY {form.id_column} LIMIT {_AT_ONCE}"
        )
        for row in self._connection.execute(query, (after_id,)):
            yield (name, *row)


def _id_of(row: CopiedRow) -> int:
    return int(row[1] or 0)


def understood(row: CopiedRow) -> DecodedRow:
    """Decode a row of another ledger.

    Raises WireError for a malformed one.
    """
    try:
        name, row_id, epoch, *columns = row
        form = _FORMS[str(name)]
        if type(row_id) is not int or type(epoch) is not int or len(columns) != len(form.columns) - 2:
            raise ValueError("id, epoch or number of columns")
        return DecodedRow(row, row_id, form.from_row((row_id, *columns)))
    except _MALFORMED as error:
        raise WireError(f"a row of the ledger cannot be read: {error}") from None


class LedgerCopy(Ledger):
    """A standby's copy of a run's ledger, which takes rows over, and decides nothing.

    A controller that opens the folder as a run has a far higher epoch than the controller that was followed. Opening it
    raises CorruptionError also when its rows are not in their chain.
    """

    def __init__(self, path: Path, segments: Path, *, run: str, segment_bytes: int = SEGMENT_BYTES) -> None:
        super().__init__(path, segments, run=run, segment_bytes=segment_bytes)
        self._forgotten = -1
        self._checked = chain.BEGINNING
        try:
            self.check()
        except BaseException:
            self.close()
            raise

    def check(self) -> None:
        """Check that the rows since the last check are in their chain.

        Raises CorruptionError, StorageError.
        """
        with storage_errors(self.path, "read"):
            self._checked = chain.checked(self._connection, self._checked)

    def follow(self, epoch: int) -> None:
        """Accept rows of a controller with this epoch from now on.

        Raises CorruptionError when the copy is ahead.
        """
        with transaction(self._connection, self.path):
            self._set_meta(epoch=max(self.epoch, epoch + TERM - 1))

    def append(self, rows: Sequence[DecodedRow], payloads: Mapping[int, PayloadBytes]) -> None:
        """Make rows durable, with the available payloads of their contributions, by assignment.

        When it fails, some of the first are. Raises WireError when they do not follow the present rows,
        CorruptionError, StorageError.
        """
        if [row.id for row in rows] != list(range(self.last_id + 1, self.last_id + 1 + len(rows))):
            raise WireError(f"rows that do not follow on {self.last_id}, where this copy of the ledger ends")
        for piece in self._pieces(rows, payloads):
            self._append(piece, {number: payloads[number] for number in map(_number, piece) if number in payloads})
        if self.last_id - self._checked.rows >= _UNCHECKED:
            self.check()

    def _pieces(
        self, rows: Sequence[DecodedRow], payloads: Mapping[int, PayloadBytes]
    ) -> Iterator[Sequence[DecodedRow]]:
        """Yield the rows that are committed together.

        A payload is on disk before its row is: its assignment has to be known by then, or an interrupted copy could not
        be opened again.
        """
        begin, known = 0, self._newest("assignment", "assignments")
        for end, row in enumerate(rows):
            if (number := _number(row)) in payloads and number > known and end > begin:
                yield rows[begin:end]
                begin, known = end, self._newest("assignment", "assignments")
        if begin < len(rows):
            yield rows[begin:]

    def _append(self, rows: Sequence[DecodedRow], payloads: Mapping[int, PayloadBytes]) -> None:
        durable = self.segments.append(payloads)
        linked = [(_FORMS[str(name)], columns) for name, *columns in (row.row for row in rows)]
        try:
            head = chain.extended(self.head, linked)
            with transaction(self._connection, self.path):
                for form, columns in linked:
                    self._write(form, columns)
                chain.keep(self._connection, head)
                if durable != self._durable:
                    self._set_meta(segment_number=durable.number, segment_bytes=durable.offset)
        except (sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.DataError, *_MALFORMED, OverflowError) as error:
            raise WireError(f"a row of the ledger does not fit its table: {error}") from None
        self._durable, self.head = durable, head
        self.last_id += len(rows)

    def _write(self, form: RowFormat, values: Sequence[Any]) -> None:
        written = self._connection.execute(form.write, form.written(values)).rowcount
        if written != 1:
            raise WireError(f"a row of the ledger's table {form.table} completes none that is here")

    def forget_until(self, version: int) -> None:
        """Drop the contributions of versions up to `version`, which a checkpoint covers."""
        query = "SELECT contributions FROM versions WHERE version > ? AND version <= ?"
        with storage_errors(self.path, "read"):
            rows = self._connection.execute(query, (self._forgotten, version)).fetchall()
        self._forgotten = max(version, self._forgotten)
        for (numbers,) in rows:
            self.segments.forget(msgspec.json.decode(numbers, type=list[int]))

    def newest_made(self) -> int:
        """Return the newest version whose parameters existed, 0 at a run's start.

        Raises StorageError.
        """
        with storage_errors(self.path, "read"):
            query = "SELECT coalesce(max(version), 0) FROM versions WHERE made_id IS NOT NULL"
            return int(self._connection.execute(query).fetchone()[0])

    def lacking(self, after_version: int) -> list[int]:
        """Return accepted contributions in later versions than that, or in none yet, without a payload here."""
        with storage_errors(self.path, "read"):
            rows = self._connection.execute(
                "SELECT assignment FROM contributions WHERE verdict = 'accepted' AND digest != '' "
                "AND assignment NOT IN "
                "(SELECT value FROM versions, json_each(versions.contributions) WHERE version <= ?) "
                "AND assignment NOT IN (SELECT json_extract(detail, '$.assignment') FROM events WHERE kind = ?)",
                (after_version, kind_of(Voided)),
            ).fetchall()
        return [number for (number,) in rows if number not in self.segments]


def brought(found: DecodedRow) -> Judged | None:
    """Return the contribution that came with this row, if one did."""
    return found.decision if isinstance(found.decision, Judged) and found.decision.brings else None


def _number(found: DecodedRow) -> int:
    """Return the assignment whose contribution came with this row; -1 when none did."""
    judged = brought(found)
    return -1 if judged is None else judged.assignment


def is_note(found: DecodedRow, kind: type[Any]) -> bool:
    """Return whether the row is a note of that kind."""
    return isinstance(found.decision, Noted) and isinstance(found.decision.note, kind)
