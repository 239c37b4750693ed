"""Enrolment of a machine with an invite as a node of its run."""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
from collections.abc import Callable

from barnraise.core.errors import InviteError, TakenError
from barnraise.core.text import printable
from barnraise.transport import Invite, proof
from barnraise.transport.base import Connection
from barnraise.trust import signatures
from barnraise.trust.signatures import RunId
from barnraise.wire.frames import decode_from_controller, encode
from barnraise.wire.messages import LATER, PROTOCOL_VERSION, TAKEN, Enrol, Enrolled, Stop
from barnraise.worker.options import REASON, WorkerOptions

INTERVAL, LONGEST_INTERVAL = 2.0, 60.0
"""Seconds after which the proof is sent again; doubled after each temporary refusal, up to the second."""

SILENCE = 5
"""Unanswered proofs after which a message says so."""


async def enrol(
    connection: Connection, options: WorkerOptions, invite: Invite, say: Callable[[str], None] = lambda text: None
) -> None:
    """Repeat the proof until the controller answers; earlier keys of this worker endorse its new ones.

    Raises InviteError when the machine is not admitted, AddressError when the controller cannot be reached.
    """
    await connection.ready(timeout=15.0)
    nonce = secrets.token_hex(32)
    keys, name, signer = options.keys, options.name, options.keys.signer.public
    mark = proof(invite.secret, invite.server_key, keys.public, name, nonce, signer)
    word = ""
    if options.former is not None:
        run = RunId(invite.run, invite.server_key)
        word = options.former.signer.sign(signatures.rotation(run, name, keys.public, signer))
    message = encode(Enrol(PROTOCOL_VERSION, invite.token, name, nonce, mark, signer=signer, endorsement=word))
    refused = unanswered = 0
    while True:
        await connection.send(message)
        answer = await _answer(connection)
        if isinstance(answer, Enrolled):
            return
        if answer is None:
            unanswered += 1
            if unanswered == SILENCE:
                say("the controller has not answered yet: this machine keeps asking to join; Ctrl-C stops")
            continue
        reason = printable(answer.reason, REASON)
        if answer.refusal != LATER:
            raise TakenError(reason) if answer.refusal == TAKEN else InviteError(reason)
        wait = min(INTERVAL * 2.0**refused, LONGEST_INTERVAL) * random.uniform(0.5, 1.0)
        refused, unanswered = min(refused + 1, 10), 0
        say(f"not admitted yet: {reason}; this machine asks again in {wait:.0f} s")
        await asyncio.sleep(wait)


async def _answer(connection: Connection) -> Enrolled | Stop | None:
    """Return the controller's answer to the proof; None when there is none for a while."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(INTERVAL):
            while frames := await connection.receive():
                answer, _ = decode_from_controller(frames)
                if isinstance(answer, Enrolled | Stop):
                    return answer
    return None
