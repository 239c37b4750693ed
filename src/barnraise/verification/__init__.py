"""Verification of a run directory: every file, row, payload and version, checked without the run."""

from barnraise.verification.certificate import Certificate, CertificatePart
from barnraise.verification.check import Check, CheckFinding, Unchecked
from barnraise.verification.subject import LedgerRow, Subject
from barnraise.verification.verify import standard, verify

__all__ = [
    "Certificate",
    "CertificatePart",
    "Check",
    "CheckFinding",
    "LedgerRow",
    "Subject",
    "Unchecked",
    "standard",
    "verify",
]
