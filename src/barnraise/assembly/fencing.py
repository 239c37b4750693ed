"""A run's earlier controllers: a controller that took over dials them, so that one that returns ends."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec

from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import InputError
from barnraise.ledger import RunDirectory
from barnraise.transport import Keys
from barnraise.transport.fallback import connection_for
from barnraise.wire.following import Follow
from barnraise.wire.frames import encode
from barnraise.wire.messages import PROTOCOL_VERSION, Term

FOLLOWED = "followed.json"
"""The address of the controller that this folder's standby follows, or did before it took over."""

PREDECESSORS = "predecessors.json"
"""The addresses of all controllers before this folder's, the first one first. Standbys copy it."""

KEY = "standby.json"
"""Among the keys: those of the standby that this folder's controller was."""

MOST = 32
"""Controllers before this one that are dialled, the newest ones."""


def standby_key(run: RunDirectory) -> str:
    """Return the public key of the standby that this folder's controller was; "" when it was none."""
    try:
        return Keys.load(run.keys / KEY).public
    except (OSError, InputError):
        return ""


def follows(run: RunDirectory, uri: str) -> None:
    """Record that this folder is a copy of the run of the controller at `uri`.

    Raises StorageError.
    """
    run.write(run.path / FOLLOWED, msgspec.json.encode([uri]))


def predecessors(run: RunDirectory) -> list[str]:
    """Return the addresses of the controllers before this one, recorded for this one's standbys, too.

    Raises StorageError.
    """
    before = _addresses(run, PREDECESSORS)
    found = list(dict.fromkeys([*before, *_addresses(run, FOLLOWED)]))[-MOST:]
    if found != before:
        run.write(run.path / PREDECESSORS, msgspec.json.encode(found))
    return found


async def fence(uri: str, server: Keys, term: Term) -> None:
    """Tell a controller at `uri`, repeatedly, that there is a later one: this one, of `term`."""
    nobody = "0" * 64  # admitted nowhere: the term is the message
    greeting = encode(Follow(PROTOCOL_VERSION, "0" * 16, "later", nobody, nobody, uri="", term=term))
    keys = Keys.generate()
    while True:
        with contextlib.suppress(Exception):  # after any error of a connection, the next one is tried
            connection = connection_for(uri)
            try:
                await connection.open(uri, server.public, keys)
                await connection.ready(5.0)
                await connection.send(greeting)
                await asyncio.sleep(1.0)
            finally:
                await connection.close()
        await asyncio.sleep(0.5)


def _addresses(run: RunDirectory, name: str) -> list[str]:
    """Return the addresses in a file; none when it is missing or damaged, which stops no run."""
    try:
        return msgspec.json.decode((run.path / name).read_bytes(), type=list[str])
    except (OSError, *MALFORMED):
        return []
