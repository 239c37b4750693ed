"""The verification of a run directory, which visits it once for all checks."""

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
    """Return the checks of every run directory.

    At most `most_versions` versions are made again, and `most_work` contributions repeated. A further check goes behind
    them: their results are in the subject by then.
    """
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
    """Verify a run directory, whether the run works, is over or crashed, without changing it.

    Findings are in the certificate; only a folder that is no run directory raises.
    """
    began = time.monotonic()
    checks = standard() if checks is None else checks
    cut: set[Check] = set()

    def attempt(check: Check, call: Callable[..., None], *arguments: object) -> None:
        if check in cut:
            return
        try:
            call(*arguments)
        except Exception as error:  # any error from damaged bytes: an unfinished check is not sound
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
