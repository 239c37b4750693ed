"""Goes through a run directory once, with all checks looking on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from barnraise.controller.tensors.parameter_server import ParameterServer
from barnraise.ledger import RunDirectory
from barnraise.verification.certificate import Certificate, certify
from barnraise.verification.check import Check
from barnraise.verification.checkpoints import CheckpointsCheck
from barnraise.verification.files import FilesCheck
from barnraise.verification.model import ModelCheck
from barnraise.verification.payloads import PayloadsCheck
from barnraise.verification.rows import LedgerCheck
from barnraise.verification.signed import SignedCheck
from barnraise.verification.subject import Subject
from barnraise.verification.versions import VersionsCheck
from barnraise.verification.work import SAMPLE, WorkCheck


def standard(most_versions: int | None = None, most_work: int = SAMPLE) -> list[Check]:
    """The checks of every run directory; at most so many versions are made again, and so many contributions done again.
    A further one goes behind them: what they have found out by then is in the subject."""
    return [
        LedgerCheck(),
        FilesCheck(),
        PayloadsCheck(),
        CheckpointsCheck(),
        VersionsCheck(most_versions),
        WorkCheck(most_work),
        ModelCheck(),
        SignedCheck(),
    ]


def verify(run: RunDirectory, checks: Sequence[Check] | None = None) -> Certificate:
    """Check all of a run directory that can be checked, whether the run works, is over or crashed. Changes nothing in
    it. What is wrong is in the certificate; only what is no run directory raises."""
    began = time.monotonic()
    checks = standard() if checks is None else checks
    cut: set[Check] = set()

    def attempt(check: Check, call: Callable[..., None], *arguments: object) -> None:
        if check in cut:
            return
        try:
            call(*arguments)
        except Exception as error:  # whatever damaged bytes lead to: what is not checked to its end is not sound
            cut.add(check)
            check.wrong(
                "", "", expected="a check that comes to its end", found=_told(error), remedy="see the other findings"
            )

    def at(server: ParameterServer) -> None:
        for check in checks:
            attempt(check, check.version, server)

    with Subject(run) as subject:
        for check in checks:
            attempt(check, check.begin, subject)
        reading = [check for check in checks if type(check).row is not Check.row]
        try:
            for row in subject.rows():
                for check in reading:
                    attempt(check, check.row, row)
        except Exception as error:
            if not subject.broken:
                subject.broken = "the ledger cannot be read to its end"
                checks[0].wrong(
                    subject.name_of(run.ledger), "", expected="a database that can be read", found=_told(error)
                )
        for check in checks:
            attempt(check, check.walk, at)
        for check in checks:
            attempt(check, check.end)
        return certify(subject, checks, time.monotonic() - began)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
