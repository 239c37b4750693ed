"""A trustee's journal keeps its decisions through a kill, and is refused when it is in use or damaged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from barnraise.core.errors import CorruptionError, StorageError
from barnraise.privacy.masking.journal import FILE_NAME, TrusteeJournal
from barnraise.privacy.masking.trustee import ListBound, SeedsGiven

BOUND = ListBound("ab" * 32, "cd" * 32, (1, 2, 2**53), ((3, "ef" * 32),))


def test_decisions_come_back_in_their_order(tmp_path: Path) -> None:
    journal = TrusteeJournal(tmp_path)
    assert journal.decisions == []
    for decision in (BOUND, SeedsGiven(BOUND.digest)):
        journal.record(decision)
    journal.close()
    again = TrusteeJournal(tmp_path)
    assert again.decisions == [BOUND, SeedsGiven(BOUND.digest)]
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o077 == 0
    again.close()


def test_a_killed_trustee_keeps_what_it_recorded(tmp_path: Path) -> None:
    code = f"""
import os, pathlib, signal
from barnraise.privacy.masking.journal import TrusteeJournal
from barnraise.privacy.masking.trustee import SeedsGiven
journal = TrusteeJournal(pathlib.Path({str(tmp_path)!r}))
for number in range(20):
    journal.record(SeedsGiven(f"{{number:064x}}"))
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    journal = TrusteeJournal(tmp_path)
    assert [int(one.digest, 16) for one in journal.decisions] == list(range(20))
    journal.close()


def test_a_journal_that_another_process_has_is_refused(tmp_path: Path) -> None:
    journal = TrusteeJournal(tmp_path)
    code = f"""
import pathlib
from barnraise.core.errors import StorageError
from barnraise.privacy.masking.journal import TrusteeJournal
try:
    TrusteeJournal(pathlib.Path({str(tmp_path)!r}))
except StorageError as error:
    print(error)
"""
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert "locked" in told
    journal.close()


def test_a_damaged_journal_is_refused(tmp_path: Path) -> None:
    journal = TrusteeJournal(tmp_path)
    journal._database.execute("INSERT INTO decisions (body) VALUES (x'00')")
    journal.close()
    with pytest.raises(CorruptionError, match="damaged"):
        TrusteeJournal(tmp_path)
    (tmp_path / FILE_NAME).write_bytes(os.urandom(4096))
    with pytest.raises(StorageError, match="cannot be used"):
        TrusteeJournal(tmp_path)


def test_a_folder_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be used"):
        TrusteeJournal(tmp_path / "none")


def test_a_journal_that_takes_no_decision_says_so(tmp_path: Path) -> None:
    journal = TrusteeJournal(tmp_path)
    journal.close()
    with pytest.raises(StorageError, match="took no decision"):
        journal.record(BOUND)
