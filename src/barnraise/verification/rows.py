"""Check of the ledger: a sound database, rows in their chain, and consistent decisions."""

from __future__ import annotations

from collections.abc import Callable

from barnraise.controller.state import invariants
from barnraise.controller.tensors.parameter_server import ParameterServer
from barnraise.core.errors import BarnraiseError
from barnraise.ledger import Noted, chain, notes, write_ahead
from barnraise.ledger.chain import Comparison
from barnraise.ledger.disk import storage_errors
from barnraise.ledger.view import read_meta
from barnraise.verification.check import FROM_A_COPY, Check
from barnraise.verification.subject import LedgerRow, Subject

_MOST = 20


class LedgerCheck(Check):
    """The first check: it folds the history that others use."""

    name = "ledger"
    says = (
        "The database is sound, each row is in the hash chain as it was committed, and all decisions fold to a valid "
        "state."
    )

    def begin(self, subject: Subject) -> None:
        super().begin(subject)
        self._file, self._comparison = subject.name_of(subject.run.ledger), Comparison(())
        self._epoch, self._run = 0, ""  # by the rows
        try:
            self._database()
        except (BarnraiseError, UnicodeError, MemoryError) as error:  # SQLite quotes bytes that are no text
            subject.broken = "the ledger cannot be opened"
            self.wrong(self._file, "", expected="a sound database", found=str(error))

    def _database(self) -> None:
        log = self.subject.write_ahead_log
        if log.is_file() and self.subject.pid is None:
            for offset in write_ahead.damage(log):
                self.wrong(
                    self.subject.name_of(log),
                    f"byte {offset} and what follows",
                    expected="a frame of the write-ahead log as its checksum says",
                    found="another one: SQLite would pass over it, and over all rows from there on",
                )
        connection = self.subject.connection
        with storage_errors(self.subject.run.ledger, "read"):
            for (told,) in connection.execute(f"PRAGMA integrity_check({_MOST})"):
                if told != "ok":
                    self.wrong(self._file, str(told), expected="a sound database", found="SQLite finds it malformed")
            self._comparison = Comparison(list(chain.heads(connection)))

    def row(self, row: LedgerRow) -> None:
        self.count("rows")
        if row.id != self._comparison.last + 1:
            self._lacking(row)
        for found in self._comparison.take(row.id, row.form, row.columns):
            self._broken(found)
        self._expected()
        self._epoch = max(self._epoch, int(row.columns[1]))
        if isinstance(row.decision, Noted) and isinstance(row.decision.note, notes.Started):
            self._run = row.decision.note.run
        self._fold(row)

    def _lacking(self, row: LedgerRow) -> None:
        last = self._comparison.last
        place = f"row {last + 1}" if row.id == last + 2 else f"rows {last + 1} to {row.id - 1}"
        self.wrong(self._file, place, expected="a row of every number", found="it is missing")
        self.subject.broken = self.subject.broken or f"{place} of the ledger is missing"

    def _broken(self, found: chain.Break) -> None:
        if not found.rows:
            place = f"table chain, id {found.last}"
            self.wrong(self._file, place, expected="the head that the rows lead to", found=found.head[:80])
            return
        one, last = found.first == found.last, self._comparison.last
        place = f"row {found.first}" if one else f"one of rows {found.first} to {found.last}"
        self.wrong(
            self._file,
            place,
            expected=f"rows that lead to the chain's head {found.head[:16]}",
            found="others" if found.last <= last else f"they end with row {last}",
        )

    def _expected(self) -> None:
        ours = self._comparison.head
        for head in self.subject.expected_heads:
            if head.rows == ours.rows and head.digest != ours.digest and self._comparison.suspect is None:
                self.wrong(
                    self._file,
                    f"row {head.rows} or one before",
                    expected=f"rows that lead to {head.digest[:16]}, as {head.file} says",
                    found=f"they lead to {ours.digest[:16]}",
                    remedy=f"put back the ledger that belongs to {head.file}, or that file, from a copy",
                )

    def _fold(self, row: LedgerRow) -> None:
        subject = self.subject
        if row.decision is None:
            self.wrong(
                self._file,
                f"row {row.id}, table {row.form.table}",
                expected="a decision",
                found="none that can be read",
            )
            subject.broken = subject.broken or f"row {row.id} of the ledger cannot be read"
        if subject.broken or row.decision is None:
            return
        try:
            subject.history.take(row.decision)
        except (AssertionError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
            subject.broken = f"row {row.id} of the ledger does not follow on those before"
            self.wrong(
                self._file,
                f"row {row.id}, table {row.form.table}",
                expected="a decision that follows on those before",
                found=f"{type(error).__name__}: {error}",
            )

    def walk(self, at: Callable[[ParameterServer], None]) -> None:
        subject = self.subject
        subject.history.close()
        first, last = self._comparison.first, self._comparison.last
        for found in self._comparison.end():
            self._broken(found)
        if self._comparison.compared:
            self.count("heads", self._comparison.compared)
        else:
            self.leave(
                "the hash chain", "the ledger has none: an older barnraise wrote it, and none has written to it since"
            )
        if self._comparison.compared and first <= last:
            self.wrong(
                self._file,
                f"rows {first} to {last}",
                expected="rows in the chain",
                found="none of its heads is of them",
                remedy="an older barnraise wrote them, or the chain was cut: `barnraise resume` takes them up",
            )
        for head in subject.expected_heads:
            if head.rows > last:
                self.wrong(
                    self._file,
                    f"rows {last + 1} to {head.rows}",
                    expected=f"as many rows as {head.file} says",
                    found=f"it ends at row {last}",
                    remedy=FROM_A_COPY,
                )
        self._meta()
        if not subject.broken:
            try:
                invariants.validate(subject.history.state)
            except AssertionError as error:
                self.wrong(self._file, "its end", expected="a valid state of the controller", found=str(error))

    def _meta(self) -> None:
        """Compare the table of metadata with the rows, where they have the same facts."""
        meta = read_meta(self.subject.connection, self.subject.run.ledger)
        if self._run and meta.get("run") != self._run:
            self.wrong(self._file, "table meta, run", expected=self._run, found=str(meta.get("run")))
        if not isinstance(epoch := meta.get("epoch"), int) or epoch < self._epoch:
            self.wrong(self._file, "table meta, epoch", expected=f"{self._epoch} or more", found=str(epoch))
