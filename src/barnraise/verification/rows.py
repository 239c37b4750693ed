"""The ledger: a sound database, rows in their chain, and decisions that follow on each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from barnraise.controller import invariants
from barnraise.controller.parameter_server import ParameterServer
from barnraise.core.errors import BarnraiseError
from barnraise.ledger import Noted, chain, notes, write_ahead
from barnraise.ledger.chain import GENESIS, Head
from barnraise.ledger.disk import storage_errors
from barnraise.ledger.view import read_meta
from barnraise.verification.check import FROM_A_COPY, Check
from barnraise.verification.subject import LedgerRow, Subject

_MOST = 20


class LedgerCheck(Check):
    """The first of all: it folds the history that others look at."""

    name = "ledger"
    says = (
        "The database is sound, each row is in the hash chain as it was committed, and all decisions fold to a valid "
        "state."
    )

    def begin(self, subject: Subject) -> None:
        super().begin(subject)
        self._file, self._digest, self._last = subject.name_of(subject.run.ledger), GENESIS, 0
        self._other: bytes | None = None  # what the chain would be if the head before, not its rows, were changed
        self._suspect: tuple[int, int, str] | None = None
        self._heads: Iterator[Head] = iter(())
        self._next: Head | None = None
        self._first = 1  # row of the commit that is being read
        self._epoch, self._run = 0, ""  # as rows say
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
            self._heads = iter(list(chain.heads(connection)))
        self._next = next(self._heads, None)

    def row(self, row: LedgerRow) -> None:
        self.count("rows")
        if row.id != self._last + 1:
            self._lacking(row)
        before = self._digest
        self._digest = chain.link(before, row.form, row.columns)
        self._other = chain.link(self._other, row.form, row.columns) if self._other is not None else None
        self._last = row.id
        self._compare()
        self._expected()
        self._epoch = max(self._epoch, int(row.columns[1]))
        if isinstance(row.decision, Noted) and isinstance(row.decision.note, notes.Started):
            self._run = row.decision.note.run
        self._fold(row)

    def _lacking(self, row: LedgerRow) -> None:
        place = f"row {self._last + 1}" if row.id == self._last + 2 else f"rows {self._last + 1} to {row.id - 1}"
        self.wrong(self._file, place, expected="a row of every number", found="it is missing")
        self.subject.broken = self.subject.broken or f"{place} of the ledger is missing"

    def _compare(self) -> None:
        """With what the ledger keeps of its chain: rows that do not lead to a head are changed, or it is. Which of
        these, the next head tells, which goes on from the one or the other."""
        kept = self._next
        while kept is not None and kept.rows < self._last:
            kept = self._next = next(self._heads, None)
        if kept is None or kept.rows != self._last:
            return
        self._next = next(self._heads, None)
        self.count("heads")
        first = self._first
        self._first = self._last + 1
        ours, other = self._digest.hex(), self._other.hex() if self._other is not None else ""
        if self._suspect is not None and kept.digest in (ours, other):
            self._settle(rows=kept.digest == other)
            if kept.digest == other and self._other is not None:
                self._digest = self._other
            self._other = None
        elif kept.digest != ours:
            if self._suspect is not None:
                self._settle(rows=True)
            self._suspect = first, self._last, kept.digest
            self._other = _bytes(kept.digest)

    def _settle(self, rows: bool) -> None:
        """Say what is wrong about the last commit that did not lead to its head."""
        assert self._suspect is not None
        first, last, digest = self._suspect
        place = f"row {first}" if first == last else f"one of rows {first} to {last}"
        if rows:
            self.wrong(self._file, place, expected=f"rows that lead to the chain's head {digest[:16]}", found="others")
        else:
            self.wrong(
                self._file, f"table chain, id {last}", expected="the head that the rows lead to", found=digest[:80]
            )
        self._suspect = None

    def _expected(self) -> None:
        for head in self.subject.expected_heads:
            if head.rows == self._last and head.digest != self._digest.hex() and self._suspect is None:
                self.wrong(
                    self._file,
                    f"row {head.rows} or one before",
                    expected=f"rows that lead to {head.digest[:16]}, as {head.file} says",
                    found=f"they lead to {self._digest.hex()[:16]}",
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
        if self._suspect is not None:
            self._settle(rows=True)
        if not self.figures.get("heads"):
            self.leave(
                "the hash chain", "the ledger has none: an older barnraise wrote it, and none has gone on with it since"
            )
        elif self._first <= self._last:
            self.wrong(
                self._file,
                f"rows {self._first} to {self._last}",
                expected="rows in the chain",
                found="none of its heads is of them",
                remedy="an older barnraise wrote them, or the chain was cut: `barnraise resume` takes them up",
            )
        for head in subject.expected_heads:
            if head.rows > self._last:
                self.wrong(
                    self._file,
                    f"rows {self._last + 1} to {head.rows}",
                    expected=f"as many rows as {head.file} says",
                    found=f"it ends at row {self._last}",
                    remedy=FROM_A_COPY,
                )
        self._meta()
        if not subject.broken:
            try:
                invariants.validate(subject.history.state)
            except AssertionError as error:
                self.wrong(self._file, "its end", expected="a valid state of the controller", found=str(error))

    def _meta(self) -> None:
        """What the table beside the rows says, as far as they know it too."""
        meta = read_meta(self.subject.connection, self.subject.run.ledger)
        if self._run and meta.get("run") != self._run:
            self.wrong(self._file, "table meta, run", expected=self._run, found=str(meta.get("run")))
        if not isinstance(epoch := meta.get("epoch"), int) or epoch < self._epoch:
            self.wrong(self._file, "table meta, epoch", expected=f"{self._epoch} or more", found=str(epoch))


def _bytes(digest: str) -> bytes:
    """The bytes of a head; of what is none, others."""
    try:
        return bytes.fromhex(digest)
    except ValueError:
        return GENESIS
