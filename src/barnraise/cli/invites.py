"""A run's book of invites on disk, shared by the controller and by `barnraise invite`; how an invite is handed on."""

from __future__ import annotations

import fcntl
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from barnraise.cli import console
from barnraise.core.errors import InviteError
from barnraise.ledger import RunDirectory
from barnraise.transport import Invite, TokenBook

INVITE_VARIABLE = "BARNRAISE_INVITE"
"""Environment variable that `join` takes its invite from when it is given none."""

MAX_INVITE = 4096
"""Characters of an invite at most."""


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


def new_invite(run: RunDirectory, uri: str, server_key: str, *, uses: int, hours: float, host: str = "") -> Invite:
    """An invite to the run that listens at `uri` (two addresses have a space between), in its book from now on. `host`
    is the name that workers shall dial instead."""
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
    )
    with open_book(run) as book:
        book.add(invite)
    return invite


def show(run: RunDirectory, invite: Invite, note: Callable[[str], None]) -> None:
    """Say how to join. The invite itself stands in a file of the run, and on a terminal, which keeps no log."""
    path = run.write_key("invite", f"{invite}\n".encode())
    note("workers join with:")
    note(f"barnraise join '{invite if sys.stderr.isatty() else f'@{path}'}'")
    note(f"to take it back: barnraise revoke {run.path} {invite.token}")


def given(text: str) -> str:
    """The invite that `text` is, or names: `@FILE`, or `-` for standard input. Whoever is on this machine may read a
    command's arguments, so these and the environment are where a secret belongs. Raises InviteError."""
    try:
        if text == "-":
            if sys.stdin.isatty():
                console.note("paste the invite, then press Enter:")
            return sys.stdin.readline(MAX_INVITE)
        if text.startswith("@"):
            with Path(text[1:]).expanduser().open(encoding="utf-8") as file:
                return file.read(MAX_INVITE)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise InviteError(f"the invite cannot be read from {text.lstrip('@')}: {reason}") from None
    return text
