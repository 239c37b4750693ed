"""The seal of a run that is over: the digest of each of its files, the ledger's among them, in seal.json.

The chain over the ledger's rows says nothing of the bytes between them, and report, pictures and logs are on no ledger:
so each file's bytes are sealed once nobody writes them any more. The seal's own digest, which stands in it, is of its
other fields; the ledger's head is one of them. Whoever has noted it can tell later whether any byte has changed.
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
}
"""Files that no seal is of, and what they are."""


class Seal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The files of run `run`, by their paths in its folder, and the ledger's chain: `head` after so many `rows`."""

    run: str
    rows: Count
    head: Digest
    files: dict[str, StoredFile]
    digest: str = ""

    def encode(self) -> bytes:
        """The file."""
        return msgspec.json.format(msgspec.json.encode(self)) + b"\n"

    def bare_digest(self) -> str:
        """What `digest` must be."""
        return hashlib.sha256(msgspec.structs.replace(self, digest="").encode()).hexdigest()


def put(run: RunDirectory) -> Seal:
    """Seal a run that has ended, whose lock is held. Raises StorageError."""
    with storage_errors(run.ledger), closing(sqlite3.connect(run.ledger, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        head = chain.newest(connection)
    files = {name: describe(run.path / name) for name in sealable(run)}
    seal = Seal(run.path.name, head.rows, head.digest, files)
    seal = msgspec.structs.replace(seal, digest=seal.bare_digest())
    run.write(run.seal, seal.encode())
    return seal


def read(run: RunDirectory) -> Seal | None:
    """The run's seal; None when it has none. Raises CorruptionError for one that was changed."""
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
    """The paths of all files that a seal is of."""
    for path in sorted(run.path.rglob("*")):
        name = path.relative_to(run.path).as_posix()
        if path.is_symlink() or not path.is_file() or name in OPEN or is_empty_log(path):
            continue
        yield name


def is_empty_log(path: Path) -> bool:
    """Whether it is SQLite's write-ahead log, and nothing is in it: readers leave one behind."""
    return path.name == "ledger.sqlite-wal" and path.stat().st_size == 0
