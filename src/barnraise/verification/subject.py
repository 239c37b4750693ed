"""The run directory that is verified, opened so that nothing in it changes and nobody has to wait."""

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
    """A file says that the ledger's chain had this head after so many rows."""

    file: str
    rows: int
    digest: str


class LedgerRow(NamedTuple):
    """A row of the ledger: its columns as they stand, and what it decides; None where that cannot be read."""

    id: int
    form: RowFormat
    columns: Sequence[Any]
    decision: AnyDecision | None


class Subject:
    """A run directory, of one moment: that of the first look at its ledger.

    `history` is the ledger folded, as far as it was read; `broken` says why it could not be folded any further.
    `payloads` are those that are whole, by their contributions.
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
        """Whether a controller works there, or has since the verification began: files come and go then."""
        return self.pid is not None or self.run.holder() is not None

    @property
    def write_ahead_log(self) -> Path:
        return self.run.ledger.with_name(f"{self.run.ledger.name}-wal")

    @cached_property
    def connection(self) -> sqlite3.Connection:
        """The ledger, of one moment. Of a run that crashed SQLite would put its files in order, so a copy is read.
        Raises StorageError, RunDirectoryError."""
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
        """The ledger's rows, in order. Raises StorageError where it cannot be read any further."""
        with storage_errors(self.run.ledger, "read"):
            for row_id, form, columns in chain.rows_after(self.connection, 0):
                try:
                    decision = form.from_row((row_id, *columns[2:]))
                except (CorruptionError, TypeError, ValueError, LookupError):
                    decision = None
                yield LedgerRow(row_id, form, columns, decision)

    @cached_property
    def checkpoints(self) -> dict[int, StoredCheckpoint]:
        """Those whose manifest can be read, by version."""
        return Checkpoints(self.run.checkpoints).readable()

    @cached_property
    def plan(self) -> Plan:
        """What the run was started with. Raises RunFileError."""
        return recorded_plan(self.run)

    def name_of(self, path: Path) -> str:
        """How a file is called in the certificate."""
        return path.relative_to(self.run.path).as_posix()

    def payload(self, contribution: int) -> bytes:
        """The payload of an accepted contribution. Raises CorruptionError when it is not there, or not whole."""
        place = self.payloads.get(contribution)
        if place is None:
            raise CorruptionError(f"the payload of contribution {contribution} is not there")
        path = self.run.segments / f"{place.number:08d}.seg"
        with storage_errors(path, "read"), path.open("rb", buffering=0) as file:
            return read_exactly(file.fileno(), place.num_bytes, place.offset)
