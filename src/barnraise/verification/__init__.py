"""Whether a run directory is what its run left: every file, row, payload and version, checked without the run."""

from barnraise.verification.certificate import Certificate, Part
from barnraise.verification.check import Check, Finding, Unchecked
from barnraise.verification.subject import LedgerRow, Subject
from barnraise.verification.verify import standard, verify

__all__ = ["Certificate", "Check", "Finding", "LedgerRow", "Part", "Subject", "Unchecked", "standard", "verify"]
