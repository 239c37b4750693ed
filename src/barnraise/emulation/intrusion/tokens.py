"""Invites that let nobody in any more, and proofs that are another's."""

from __future__ import annotations

import os
import secrets
from dataclasses import replace

from barnraise.transport import Keys
from barnraise.wire.messages import PROTOCOL_VERSION, Enrol

from .base import Attempt, Trace
from .evidence import no_follower, no_node
from .member import enrolment
from .scene import Scene, a_name, by_door, say, told


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


def replaced(word: Enrol, name: str) -> Enrol:
    """The proof of another name."""
    return Enrol(PROTOCOL_VERSION, word.token, name, word.nonce, word.proof, word.signer)
