"""A file beside the ledger with the folded account, so that the next reader folds only the rows since.

It is a cache: a reader that finds none, or one that does not fit the ledger, folds all rows. It fits if the same
version of barnraise wrote it, for the same run, and the ledger still has the rows that it was folded from: it holds
their number and a digest of the last ones (`LedgerView.mark`). A folder that may not be written to gets no such file.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from barnraise.account.folded import Folded
from barnraise.core.decoding import MALFORMED
from barnraise.core.types import Count
from barnraise.ledger import LedgerView, RunDirectory

REVISION = 1
"""Raise it where a reducer counts in another way than before, and keeps its fields."""

LIMIT = 256 << 20
"""Bytes of a file that is still read."""

_MAGIC = b"barnraise account cache\n"
_DIGEST_BYTES = hashlib.sha256().digest_size


class Cached(msgspec.Struct):
    """The content of the file: `form` tells the program that wrote it, `mark` the ledger's first `rows`."""

    form: str
    run: str
    rows: Count
    mark: str
    folded: msgspec.Raw


def _form() -> str:
    """Return the version of barnraise and a digest of the fields of `Folded`."""
    from importlib import metadata  # 2 MB, which only a reader of a run directory needs

    layout = msgspec.json.encode(msgspec.json.schema(Folded), order="sorted")
    return f"{metadata.version('barnraise')} {REVISION} {hashlib.sha256(layout).hexdigest()}"


def load(run: RunDirectory, view: LedgerView) -> tuple[Folded, int] | None:
    """Return the folded account of the ledger of `view`, and the number of rows in it; None if no file fits.

    Raises StorageError when the ledger cannot be read.
    """
    try:
        with run.account_cache.open("rb") as file:
            content = file.read(LIMIT + 1)
    except OSError:
        return None
    head = len(_MAGIC) + _DIGEST_BYTES
    body = memoryview(content)[head:]
    if len(content) > LIMIT or content[:head] != _MAGIC + hashlib.sha256(body).digest():
        return None
    try:
        cached = msgspec.msgpack.decode(body, type=Cached)
        if (cached.form, cached.run) != (_form(), view.run) or cached.mark != view.mark(cached.rows):
            return None
        return msgspec.msgpack.decode(cached.folded, type=Folded), cached.rows
    except MALFORMED:
        return None


def save(run: RunDirectory, view: LedgerView, folded: Folded, rows: int) -> None:
    """Write the account that was folded from the ledger's first `rows`, if the folder allows it."""
    with suppress(OSError, ValueError, OverflowError):  # no room, no permission; a number or a text beyond MessagePack
        state = msgspec.msgpack.encode(folded)
        cached = Cached(_form(), view.run, rows, view.mark(rows), msgspec.Raw(state))
        body = msgspec.msgpack.encode(cached)
        if len(body) < LIMIT:
            with _replaced(run.account_cache) as descriptor, open(descriptor, "wb", closefd=False) as file:
                file.writelines((_MAGIC, hashlib.sha256(body).digest(), body))


@contextmanager
def _replaced(path: Path) -> Iterator[int]:
    """Open a new file that replaces `path` at the end. Raises BlockingIOError while another process writes one.

    Unlike `core.files.write_file` it may be called by several processes at once, and syncs nothing: a file that a power
    loss cuts short fails its digest.
    """
    unfinished = path.with_name(f".{path.name}.unfinished")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), unfinished.stat()):
            raise BlockingIOError(f"{unfinished} was put in its place by another process")
        os.fchmod(descriptor, 0o600)
        os.ftruncate(descriptor, 0)
        yield descriptor
        unfinished.replace(path)
    finally:
        os.close(descriptor)
