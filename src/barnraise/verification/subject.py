"""The verified run directory, opened without changing it or blocking its controller."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from barnraise.assembly.hosting import recorded_plan
from barnraise.controller.tensors.recovery import Replayed
from barnraise.core.errors import CorruptionError
from barnraise.ledger import Checkpoints, RunDirectory, StoredCheckpoint, chain
from barnraise.ledger.decisions import AnyDecision
from barnraise.ledger.disk import storage_errors
from barnraise.ledger.records import Place, read_exactly
from barnraise.ledger.rows import RowFormat
from barnraise.ledger.view import connect_read_only, connect_still, read_meta
from barnraise.plan.resolve import Plan


class ExpectedHead(NamedTuple):
    """A chain head that a file names for a number of rows."""

    file: str
    rows: int
    digest: str


class LedgerRow(NamedTuple):
    """A row of the ledger: its stored columns, and its decision; None where that cannot be read."""

    id: int
    form: RowFormat
    columns: Sequence[Any]
    decision: AnyDecision | None


class Subject:
    """A run directory at one moment: that of the first look at its ledger.

    `history` is the ledger folded, as far as it was read; `broken` says why it could not be folded any further.
    `payloads` are the whole ones, by their contributions.
    """

    def __init__(self, run: RunDirectory) -> None:
        self.run, self.pid = run, run.holder()
        self.history, self.broken = Replayed(), ""
        self.payloads: dict[int, Place] = {}
        self.expected_heads: list[ExpectedHead] = []
        self._open = ExitStack()

    def __enter__(self) -> Subject:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.close()

    @property
    def running(self) -> bool:
        """Return whether a controller works there, or has since the verification began: files come and go then."""
        return self.pid is not None or self.run.holder() is not None

    @property
    def write_ahead_log(self) -> Path:
        return self.run.ledger.with_name(f"{self.run.ledger.name}-wal")

    @cached_property
    def connection(self) -> sqlite3.Connection:
        """Return a connection to the ledger at one moment.

        After a crash SQLite would repair its files, so a copy is read. Raises StorageError, RunDirectoryError.
        """
        path, log = self.run.ledger, self.write_ahead_log
        if self.pid is not None:
            connection = self._open.enter_context(closing(connect_read_only(path)))
        elif log.is_file() and log.stat().st_size:
            folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="barnraise-")))
            with storage_errors(folder):
                for file in (path, log):
                    shutil.copyfile(file, folder / file.name)
            connection = self._open.enter_context(closing(connect_read_only(folder / path.name)))
        else:
            connection = self._open.enter_context(closing(connect_still(path)))
        connection.row_factory = None
        read_meta(connection, path)
        with storage_errors(path, "read"):
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM meta").fetchone()
        return connection

    def rows(self) -> Iterator[LedgerRow]:
        """Yield the ledger's rows, in order.

        Raises StorageError where it cannot be read any further.
        """
        with storage_errors(self.run.ledger, "read"):
            for row_id, form, columns in chain.rows_after(self.connection, 0):
                try:
                    decision = form.from_row((row_id, *columns[2:]))
                except (CorruptionError, TypeError, ValueError, LookupError):
                    decision = None
                yield LedgerRow(row_id, form, columns, decision)

    @cached_property
    def checkpoints(self) -> dict[int, StoredCheckpoint]:
        """Return the checkpoints with a readable manifest, by version."""
        return Checkpoints(self.run.checkpoints).readable()

    @cached_property
    def plan(self) -> Plan:
        """Return the plan with which the run was started.

        Raises RunFileError.
        """
        return recorded_plan(self.run)

    def name_of(self, path: Path) -> str:
        """Return the name of a file in the certificate."""
        return path.relative_to(self.run.path).as_posix()

    def payload(self, contribution: int) -> bytes:
        """Return the payload of an accepted contribution.

        Raises CorruptionError when it is missing, or not whole.
        """
        place = self.payloads.get(contribution)
        if place is None:
            raise CorruptionError(f"the payload of contribution {contribution} is not there")
        path = self.run.segments / f"{place.number:08d}.seg"
        with storage_errors(path, "read"), path.open("rb", buffering=0) as file:
            return read_exactly(file.fileno(), place.num_bytes, place.offset)
