"""A run's book of invites on disk, shared by the controller and by `barnraise invite`."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from barnraise.ledger import RunDirectory
from barnraise.transport import Invite, TokenBook


@contextmanager
def open_book(run: RunDirectory) -> Iterator[TokenBook]:
    """The book, for reading and changing: nobody else holds it meanwhile, and it is durable afterwards."""
    with (run.keys / "invites.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = run.keys / "invites.json"
        before = path.read_bytes() if path.exists() else b"{}"
        book = TokenBook.from_dict(msgspec.json.decode(before))
        yield book
        after = msgspec.json.encode(book.to_dict())
        if after != before:
            run.write_key("invites.json", after)


def add_invite(run: RunDirectory, invite: Invite) -> None:
    """Let `invite` be accepted, from now on."""
    with open_book(run) as book:
        book.add(invite)


def recorded_uri(run: RunDirectory) -> str:
    """Where the run's controller listens, or did last; empty when it never has."""
    path = run.path / "address.json"
    return str(msgspec.json.decode(path.read_bytes())["uri"]) if path.exists() else ""
