"""How a machine with an invite becomes a node of its run."""

from __future__ import annotations

import asyncio
import contextlib
import secrets

from barnraise.core.errors import InviteError
from barnraise.core.text import printable
from barnraise.transport import Invite, Keys, proof
from barnraise.transport.base import Connection
from barnraise.wire.frames import decode_from_controller, encode
from barnraise.wire.messages import PROTOCOL_VERSION, Enrol, Enrolled, Stop
from barnraise.worker.options import REASON

INTERVAL = 2.0
"""Seconds after which the proof is sent again."""


async def enrol(connection: Connection, keys: Keys, name: str, invite: Invite) -> None:
    """Repeat the proof until the controller answers. Raises InviteError when it lets this machine in no more,
    AddressError when it cannot be reached."""
    await connection.ready(timeout=15.0)
    nonce = secrets.token_hex(32)
    mark = proof(invite.secret, invite.server_key, keys.public, name, nonce)
    message = encode(Enrol(PROTOCOL_VERSION, invite.token, name, nonce, mark))
    while True:
        await connection.send(message)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(INTERVAL):
                while frames := await connection.receive():
                    answer, _ = decode_from_controller(frames)
                    if isinstance(answer, Enrolled):
                        return
                    if isinstance(answer, Stop):
                        raise InviteError(printable(answer.reason, REASON))
