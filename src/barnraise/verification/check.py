"""The interface of checks, which visit a run once and record their findings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

import msgspec

if TYPE_CHECKING:
    from barnraise.controller.tensors.parameter_server import ParameterServer
    from barnraise.verification.subject import LedgerRow, Subject

FROM_A_COPY = "put the file back from a copy; without one, its content cannot be believed"


class CheckFinding(msgspec.Struct, frozen=True):
    """A defect: the file of the run directory and the place in it, expected and found content, and the remedy."""

    file: str
    place: str
    expected: str
    found: str
    remedy: str


class Unchecked(msgspec.Struct, frozen=True):
    """Items that were not checked, and the reason.

    `count`: how many items these are; 0 for files that belong to no run, such as a lock, which need no check.
    """

    what: str
    why: str
    count: int = 1


class Check:
    """Base class of checks, whose methods are called in the order of their definition.

    `name` is short, `says` a sentence for a check without findings; `figures` are counts.
    """

    name: ClassVar[str]
    says: ClassVar[str]

    def __init__(self) -> None:
        self.findings: list[CheckFinding] = []
        self.unchecked: list[Unchecked] = []
        self.figures: dict[str, int] = {}

    def wrong(self, file: str, place: str, *, expected: str, found: str, remedy: str = FROM_A_COPY) -> None:
        """Record a finding in a file."""
        self.findings.append(CheckFinding(file, place, expected, found, remedy))

    def leave(self, what: str, why: str, count: int = 1) -> None:
        """Record unchecked items, and their number (`Unchecked`)."""
        self.unchecked.append(Unchecked(what, why, count))

    def count(self, what: str, more: int = 1) -> None:
        """Add to a figure."""
        self.figures[what] = self.figures.get(what, 0) + more

    def begin(self, subject: Subject) -> None:
        """Look at files, before anything is read of the ledger."""
        self.subject = subject

    def row(self, row: LedgerRow) -> None:
        """Visit a row of the ledger, in order; `subject.history` includes it."""

    def walk(self, at: Callable[[ParameterServer], None]) -> None:
        """Visit the versions, after all rows.

        A check that recomputes versions calls `at` for each, with the server at that version.
        """

    def version(self, server: ParameterServer) -> None:
        """Visit a version that was loaded or recomputed, and has its digest.

        The server has another one after the call.
        """

    def end(self) -> None:
        """Finish, after everything was visited."""
