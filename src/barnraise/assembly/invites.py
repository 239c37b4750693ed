"""A run's book of invites on disk, shared by the controller and by commands that make or take back invites."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import msgspec

from barnraise.assembly.addresses import recorded_uri
from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import CorruptionError, InputError, RunDirectoryError
from barnraise.ledger import RunDirectory
from barnraise.ledger.disk import storage_errors
from barnraise.transport import Invite, Keys, TokenBook, allow_list
from barnraise.trust.roles import WORKER

ALLOW_LIST = "allow"
"""A file among a run's keys: the admitted keys, if it exists."""

INVITE_VARIABLE = "BARNRAISE_INVITE"
"""Environment variable from which `join` takes its invite when it is given none."""


BOOK = "invites.json"
"""The file among a run's keys that holds the book."""


def _decoded(content: bytes) -> TokenBook:
    try:
        return TokenBook.from_dict(msgspec.json.decode(content))
    except MALFORMED as error:
        raise CorruptionError(f"the book of invites is damaged ({error}): delete it and invite again") from None


@contextmanager
def open_book(run: RunDirectory) -> Iterator[TokenBook]:
    """Open the book for reading and changing: it is locked meanwhile, and durable afterwards."""
    with (run.keys / "invites.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = run.keys / BOOK
        before = path.read_bytes() if path.exists() else b"{}"
        book = _decoded(before)
        yield book
        after = msgspec.json.encode(book.to_dict())
        if after != before:
            run.write_key(BOOK, after)


class BookReader:
    """Reads the book without changing it.

    The file is decoded again only after it was replaced. The returned book may be older than the file for a moment, and
    must not be changed.
    """

    def __init__(self, run: RunDirectory) -> None:
        self._path = run.keys / BOOK
        self._stamp: tuple[int, int, int] | None = None
        self._book = TokenBook()

    def __call__(self) -> TokenBook:
        """Return the book as it is on disk.

        Raises CorruptionError, StorageError.
        """
        with storage_errors(self._path):
            try:
                found = self._path.stat()
            except FileNotFoundError:
                return TokenBook()
            stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
            if stamp != self._stamp:
                self._book = _decoded(self._path.read_bytes())
                self._stamp = stamp
        return self._book


def allowed(run: RunDirectory) -> frozenset[str] | None:
    """Return the only keys that the host admits; None where there is no list.

    Raises InputError.
    """
    path = run.keys / ALLOW_LIST
    try:
        with path.open("rb") as file:
            content = file.read(allow_list.MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}; remove it to admit every machine that has an invite"
        ) from None
    if len(content) > allow_list.MOST_BYTES:
        raise InputError(f"{path} has more than {allow_list.MOST_BYTES:,} bytes, which is no list of keys")
    return allow_list.parse(content.decode("utf-8", "replace"), str(path))


def new_invite(
    run: RunDirectory,
    uri: str,
    server_key: str,
    *,
    uses: int,
    hours: float,
    host: str = "",
    role: str = WORKER,
) -> Invite:
    """Make an invite to the run that listens at `uri`, and add it to its book.

    Two addresses have a space between. `host` is the name that workers shall dial instead.
    """
    first, *others = (urlsplit(one) for one in uri.split())
    invite = Invite.create(
        host or first.hostname or "",
        first.port or 0,
        run.path.name,
        server_key,
        now=time.time(),
        lifetime=hours * 3600.0,
        uses=uses,
        scheme=first.scheme,
        http_port=others[0].port or 0 if others else 0,
        role=role,
    )
    with open_book(run) as book:
        book.add(invite)
    return invite


def another_invite(run: RunDirectory, *, uses: int, hours: float, host: str = "", role: str = WORKER) -> Invite:
    """Make an invite to a run that was served before, whether it works now or not.

    Raises RunDirectoryError.
    """
    uri = recorded_uri(run)
    if not uri:
        raise RunDirectoryError(f"{run.path} has never listened: start it with `barnraise serve RUN.yaml`")
    key = Keys.load(run.keys / "controller.json").public
    return new_invite(run, uri, key, uses=uses, hours=hours, host=host, role=role)
