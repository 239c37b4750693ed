"""The durable record of a trustee's decisions: an SQLite file in its folder, which one process has open.

A decision is on disk before `record` returns (`synchronous=EXTRA`). A copy of an older file would forget lists that the
trustee endorsed, so the file must not be restored from a backup: a trustee that lost it takes new keys.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec

from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import CorruptionError, StorageError

from .trustee import TrusteeDecision

FILE_NAME = "trustee.sqlite"

_decoder = msgspec.msgpack.Decoder(TrusteeDecision)


class TrusteeJournal:
    """The decisions of the trustee whose folder it is, in their order.

    Raises StorageError when the file cannot be used, also while another process has it, and CorruptionError when it was
    damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE_NAME
        try:
            self._database = sqlite3.connect(self.path, isolation_level=None, timeout=0, check_same_thread=False)
            self._database.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._database.execute("PRAGMA synchronous=EXTRA")
            self._database.execute("CREATE TABLE IF NOT EXISTS decisions (number INTEGER PRIMARY KEY, body BLOB)")
            self._database.execute("BEGIN IMMEDIATE")  # takes the lock, and keeps it after the commit
            self._database.execute("COMMIT")
            rows = self._database.execute("SELECT body FROM decisions ORDER BY number").fetchall()
            self.path.chmod(0o600)
        except (sqlite3.Error, OSError) as error:
            raise StorageError(f"the journal {self.path} of a trustee cannot be used: {error}") from None
        try:
            self.decisions: list[TrusteeDecision] = [_decoder.decode(body) for (body,) in rows]
        except (*MALFORMED, TypeError) as error:
            raise CorruptionError(f"the journal {self.path} of a trustee is damaged: {error}") from None

    def record(self, decision: TrusteeDecision) -> None:
        """Append a decision; it is on disk when this returns. StorageError when it is not."""
        body = msgspec.msgpack.encode(decision)
        try:
            self._database.execute("INSERT INTO decisions (body) VALUES (?)", (body,))
        except sqlite3.Error as error:
            raise StorageError(f"the journal {self.path} of a trustee took no decision: {error}") from None

    def close(self) -> None:
        """Close the file, so that another process may open it."""
        self._database.close()
