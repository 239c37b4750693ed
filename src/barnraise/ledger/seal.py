"""The seal of a finished run: the digest of each of its files, the ledger's among them, in seal.json.

The chain over the ledger's rows does not cover the bytes between them, and report, pictures and logs are on no ledger:
so each file's bytes are sealed once they are no longer written. The seal's own digest, which stands in it, is of its
other fields; the ledger's head is one of them. A reader who has noted it can detect any later change.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path, PurePosixPath

import msgspec

from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import CorruptionError
from barnraise.core.types import Count, Digest
from barnraise.ledger import chain
from barnraise.ledger.checkpoints import StoredFile, describe
from barnraise.ledger.disk import storage_errors
from barnraise.ledger.run_directory import RunDirectory

_LIMIT = 64 << 20

OPEN = {
    "lock": "holds the process id of the last controller",
    "seal.json": "is the seal",
    "ledger.sqlite-shm": "is a cache that readers of the ledger share",
    "account.cache": "is a cache of the account that readers of the ledger keep, and no part of the evidence",
    ".account.cache.unfinished": "is a cache of the account that was not written to its end",
}
"""Files that the seal does not cover, and what they are."""


class Seal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The files of run `run`, by their paths in its folder, and the ledger's chain: `head` after `rows` rows."""

    run: str
    rows: Count
    head: Digest
    files: dict[str, StoredFile]
    digest: str = ""

    def encode(self) -> bytes:
        """Return the content of seal.json."""
        return msgspec.json.format(msgspec.json.encode(self)) + b"\n"

    def bare_digest(self) -> str:
        """Return the expected `digest`."""
        return hashlib.sha256(msgspec.structs.replace(self, digest="").encode()).hexdigest()


def put(run: RunDirectory) -> Seal:
    """Seal a run that has ended, whose lock is held.

    Raises StorageError.
    """
    with storage_errors(run.ledger), closing(sqlite3.connect(run.ledger, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        head = chain.newest(connection)
    files = {name: describe(run.path / name) for name in sealable(run)}
    seal = Seal(run.path.name, head.rows, head.digest, files)
    seal = msgspec.structs.replace(seal, digest=seal.bare_digest())
    run.write(run.seal, seal.encode())
    return seal


def read(run: RunDirectory) -> Seal | None:
    """Read the run's seal; None when it has none.

    Raises CorruptionError for one that was changed.
    """
    if not run.seal.is_file():
        return None
    with storage_errors(run.seal, "read"), run.seal.open("rb") as file:
        content = file.read(_LIMIT + 1)
    try:
        seal = msgspec.json.decode(content, type=Seal)
    except MALFORMED as error:
        raise CorruptionError(f"{run.seal} is damaged: {error}") from error
    outside = any(PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts for name in seal.files)
    if outside or seal.encode() != content or seal.bare_digest() != seal.digest:
        raise CorruptionError(f"{run.seal} is damaged: it is not what its own digest is of")
    return seal


def sealable(run: RunDirectory) -> Iterator[str]:
    """Yield the paths of all files that a seal covers."""
    for path in sorted(run.path.rglob("*")):
        name = path.relative_to(run.path).as_posix()
        if path.is_symlink() or not path.is_file() or name in OPEN or is_empty_log(path):
            continue
        yield name


def is_empty_log(path: Path) -> bool:
    """Return whether it is an empty write-ahead log of SQLite's, which readers leave behind."""
    return path.name == "ledger.sqlite-wal" and path.stat().st_size == 0
