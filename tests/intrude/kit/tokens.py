"""Attempts with invites that are no longer valid, with another machine's proofs, and with many wrong proofs."""

from __future__ import annotations

import os
import secrets
from dataclasses import replace

from barnraise.transport import Keys
from barnraise.wire.following import Follow
from barnraise.wire.frames import encode
from barnraise.wire.messages import PROTOCOL_VERSION, Enrol, Stop
from barnraise.wire.observing import Observe

from .base import Attempt, Trace
from .evidence import no_follower, no_node
from .member import enrolment
from .scene import READY, Scene, a_name, by_door, dialled, hear, say, told

MOST_WRONG = 60
"""Wrong proofs of one flood."""


class ReplayedToken(Attempt):
    """An invite once more that is used up, has expired, or was taken back, with the right proof."""

    async def make(self, scene: Scene, way: str) -> Trace:
        keys, name, invite = Keys.generate(), a_name(self.rng), by_door(self.rng.choice(scene.invites.dead), way)
        answers = await say(invite, keys, [enrolment(invite, keys, name)])
        return Trace(told(answers), (no_node(keys.public, name), no_follower(name)))


class ForgedProof(Attempt):
    """A token whose secret it lacks: guessed, made for another key, for another name or for another controller."""

    async def make(self, scene: Scene, way: str) -> Trace:
        keys, name, invite = Keys.generate(), a_name(self.rng), scene.invite(way)
        word = self.rng.choice(
            (
                enrolment(replace(invite, secret=os.urandom(32)), keys, name),
                enrolment(replace(invite, token=secrets.token_hex(8)), keys, name),
                enrolment(replace(invite, server_key=Keys.generate().public), keys, name),
                enrolment(invite, Keys.generate(), name),
                replaced(enrolment(invite, keys, f"{name}-b"), name),
            )
        )
        answers = await say(invite, keys, [word])
        return Trace(told(answers), (no_node(keys.public, name),))


class EnrolmentFlood(Attempt):
    """Wrong proofs, one after the other, from the address of a machine that holds an invite.

    It succeeds where the controller does not answer that machine's own proof meanwhile. The invite is no longer
    valid, and only its holder hears so.
    """

    async def make(self, scene: Scene, way: str) -> Trace:
        keys, dead = Keys.generate(), by_door(self.rng.choice(scene.invites.dead), way)
        async with dialled(dead, keys) as connection, dialled(dead, Keys.generate()) as flood:
            for _ in range(MOST_WRONG):
                made = PROTOCOL_VERSION, dead.token, a_name(self.rng), secrets.token_hex(32), secrets.token_hex(32)
                kinds = Enrol(*made, signer="0" * 64), Follow(*made, uri="zmq://127.0.0.1:9"), Observe(*made)
                await flood.send(encode(self.rng.choice(kinds)))
            await connection.send(encode(enrolment(dead, keys, a_name(self.rng))))
            answers = await hear(connection, READY)
        right = any(isinstance(answer, Stop) and "altered" not in answer.reason for answer in answers)
        kept_out = "" if right else "nothing, and a machine with an invite was not heard"
        return Trace(told(answers) or kept_out)


def replaced(word: Enrol, name: str) -> Enrol:
    """The proof of another name."""
    return Enrol(PROTOCOL_VERSION, word.token, name, word.nonce, word.proof, word.signer)
