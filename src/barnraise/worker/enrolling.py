"""How a machine with an invite becomes a node of its run."""

from __future__ import annotations

import asyncio
import contextlib
import secrets

from barnraise.core.errors import InviteError
from barnraise.core.text import printable
from barnraise.transport import Invite, proof
from barnraise.transport.base import Connection
from barnraise.trust import signatures
from barnraise.trust.signatures import RunId
from barnraise.wire.frames import decode_from_controller, encode
from barnraise.wire.messages import PROTOCOL_VERSION, Enrol, Enrolled, Stop
from barnraise.worker.options import REASON, WorkerOptions

INTERVAL = 2.0
"""Seconds after which the proof is sent again."""


async def enrol(connection: Connection, options: WorkerOptions, invite: Invite) -> None:
    """Repeat the proof until the controller answers; keys that this worker was known by vouch for its new ones. Raises
    InviteError when it lets this machine in no more, AddressError when it cannot be reached."""
    await connection.ready(timeout=15.0)
    nonce = secrets.token_hex(32)
    keys, name, signer = options.keys, options.name, options.keys.signer.public
    mark = proof(invite.secret, invite.server_key, keys.public, name, nonce, signer)
    word = ""
    if options.former is not None:
        run = RunId(invite.run, invite.server_key)
        word = options.former.signer.sign(signatures.rotation(run, name, keys.public, signer))
    message = encode(Enrol(PROTOCOL_VERSION, invite.token, name, nonce, mark, signer=signer, endorsement=word))
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
