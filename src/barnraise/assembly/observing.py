"""The status of a run for an observer: over the wire, with an observer's invite."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from pathlib import Path

import msgspec

from barnraise.account.run_status import RunStatus, printable_of
from barnraise.assembly.joining import default_home
from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import AddressError, InviteError, WireError
from barnraise.core.text import printable
from barnraise.transport import Invite, Keys, proof
from barnraise.transport.base import Connection
from barnraise.transport.fallback import connection_for
from barnraise.trust.roles import OBSERVER, wrong_invite
from barnraise.wire.frames import encode
from barnraise.wire.messages import LATER, PROTOCOL_VERSION, Stop
from barnraise.wire.observing import Observe, Observed, decode_to_observer

INTERVAL, PATIENCE = 3.0, 60.0
"""Seconds after which the question is asked again, and after which it fails."""

LONGEST_REASON = 1000


async def look(invite: str, home: Path | None = None) -> RunStatus:
    """Return the status of the run that `invite` is for.

    This machine keeps a key for it in `home`, so that it takes one use of the invite however often it asks. Raises
    InviteError, AddressError.
    """
    ticket = Invite.parse(invite, time.time())
    if ticket.role != OBSERVER:
        raise InviteError(wrong_invite(ticket.role, OBSERVER))
    keys = Keys.load_or_create((home or default_home()) / ticket.run / "observer.json")
    connection = connection_for(ticket.uri)
    await connection.open(ticket.uri, ticket.server_key, keys)
    try:
        await connection.ready(15.0)
        async with asyncio.timeout(PATIENCE):
            return printable_of(await _ask(connection, ticket, keys))
    except TimeoutError:
        raise AddressError(f"the controller at {ticket.uri} did not answer for {PATIENCE:g} s: try later") from None
    finally:
        await connection.close()


async def _ask(connection: Connection, ticket: Invite, keys: Keys) -> RunStatus:
    nonce = secrets.token_hex(32)
    mark = proof(ticket.secret, ticket.server_key, keys.public, OBSERVER, nonce)
    question = encode(Observe(PROTOCOL_VERSION, ticket.token, OBSERVER, nonce, mark))
    while True:
        await connection.send(question)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(INTERVAL):
                while frames := await connection.receive():
                    answer, raw = decode_to_observer(frames)
                    if isinstance(answer, Stop) and answer.refusal != LATER:
                        raise InviteError(printable(answer.reason, LONGEST_REASON))
                    if isinstance(answer, Observed) and raw is not None:
                        return _read(raw)


def _read(raw: memoryview) -> RunStatus:
    try:
        return msgspec.json.decode(raw, type=RunStatus)
    except MALFORMED as error:
        raise WireError(f"the controller's answer cannot be read: {printable(str(error))}") from None
