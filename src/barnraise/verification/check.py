"""What every check of a run directory is: told of the run as it is gone through once, it takes down what it finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

import msgspec

if TYPE_CHECKING:
    from barnraise.controller.tensors.parameter_server import ParameterServer
    from barnraise.verification.subject import LedgerRow, Subject

FROM_A_COPY = "put the file back from a copy; without one, what it says cannot be believed"


class CheckFinding(msgspec.Struct, frozen=True):
    """Something is wrong: in which file of the run directory and where in it, what was to be there and what is, and
    what to do."""

    file: str
    place: str
    expected: str
    found: str
    remedy: str


class Unchecked(msgspec.Struct, frozen=True):
    """What was not checked, and why. `count`: how many things these are; 0 for what belongs to no run, as a lock does,
    so that nothing needs to be known of it."""

    what: str
    why: str
    count: int = 1


class Check:
    """One check. A subclass overrides what concerns it; the calls come in the order in which they stand here.

    `name` is short, `says` a sentence on what is sound when nothing was found; `figures` are counts.
    """

    name: ClassVar[str]
    says: ClassVar[str]

    def __init__(self) -> None:
        self.findings: list[CheckFinding] = []
        self.unchecked: list[Unchecked] = []
        self.figures: dict[str, int] = {}

    def wrong(self, file: str, place: str, *, expected: str, found: str, remedy: str = FROM_A_COPY) -> None:
        """Take down what is wrong."""
        self.findings.append(CheckFinding(file, place, expected, found, remedy))

    def leave(self, what: str, why: str, count: int = 1) -> None:
        """Take down what is not checked, and how many things it is (`Unchecked`)."""
        self.unchecked.append(Unchecked(what, why, count))

    def count(self, what: str, more: int = 1) -> None:
        """Add to a figure."""
        self.figures[what] = self.figures.get(what, 0) + more

    def begin(self, subject: Subject) -> None:
        """Before anything is read of the ledger: look at files."""
        self.subject = subject

    def row(self, row: LedgerRow) -> None:
        """Each row of the ledger, in order; `subject.history` is as of it."""

    def walk(self, at: Callable[[ParameterServer], None]) -> None:
        """All rows are read. Who makes versions again has `at` see each, as the server stands at it."""

    def version(self, server: ParameterServer) -> None:
        """A version that was loaded or made again, and bears its digest. It is another one after the call."""

    def end(self) -> None:
        """Everything was gone through."""
