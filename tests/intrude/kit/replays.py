"""Attempts with messages that were valid once, sent again or changed on their way."""

from __future__ import annotations

import asyncio
import contextlib
import re
from dataclasses import replace
from random import Random

from barnraise.transport import Keys
from barnraise.wire.frames import Buffer, encode
from barnraise.wire.messages import Ack, Heartbeat, Message

from . import raw
from .base import Attempt, Trace
from .evidence import no_credit, no_message, one_verdict
from .relay import Relay
from .scene import HEARING, READY, Scene, dialled, say, told
from .ways import HTTP, Unmade

ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
SEALED_END = 100
"""Bytes at the end of a ZMTP unit, or less, that a seal covers."""


class ReplayedMessage(Attempt):
    """An attacker that recorded a client sends its messages again.

    It sends them within the client's connection, or all of them over another one.
    """

    async def make(self, scene: Scene, way: str) -> Trace:
        keys, twice = Keys.generate(), self.rng.random() < 0.5
        async with Relay(scene.address(way), way, repeated if twice else unchanged) as relay:
            invite = replace(scene.invite(way), host="127.0.0.1", port=relay.port)
            async with dialled(invite, keys) as connection:
                await connection.send(encode(Heartbeat(0.0)))
                await asyncio.sleep(HEARING)
        if not twice:
            if len(relay.said) < 2:
                raise Unmade("nothing was recorded")
            await raw.exchange(scene.address(way), b"".join(relay.said), HEARING)
        return Trace("", (no_message(keys.public, lambda: 1),))


def unchanged(number: int, unit: bytes) -> list[bytes]:
    return [unit]


def repeated(number: int, unit: bytes) -> list[bytes]:
    """Return each sealed unit twice."""
    return [unit, unit] if number > 2 or b"exchange" in unit else [unit]


class TamperedFrame(Attempt):
    """An attacker on the path changes a byte of a handshake or of a message."""

    async def make(self, scene: Scene, way: str) -> Trace:
        keys, change = Keys.generate(), Tampering(way, self.rng)
        async with Relay(scene.address(way), way, change) as relay:
            invite = replace(scene.invite(way), host="127.0.0.1", port=relay.port)
            async with dialled(invite, keys, ready=False) as connection:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(READY):
                        await connection.send(encode(Heartbeat(0.0)))
                        await relay.changed.wait()
                await asyncio.sleep(HEARING / 2)
            if not relay.changed.is_set():
                raise Unmade("there was nothing to change")
        return Trace("", (no_message(keys.public),))


class Tampering:
    """Flips a bit in each unit of one sort: ZMTP's handshake commands or messages, XML-RPC's handshake or requests."""

    def __init__(self, way: str, rng: Random) -> None:
        self.way, self.rng = way, rng
        self.target = rng.choice((1, 2, 3)) if way != HTTP else rng.choice((b".open", b".exchange"))

    def __call__(self, number: int, unit: bytes) -> list[bytes]:
        changed = bytearray(unit)
        if isinstance(self.target, int):
            if min(number, 3) != self.target:
                return [unit]
            body = len(unit) - (10 if self.target == 3 else 9)
            at = self.rng.randrange(1, min(SEALED_END if self.target < 3 else 16, body) + 1)
            changed[-at] ^= 1 << self.rng.randrange(8)
            return [bytes(changed)]
        text = re.search(rb"<base64>([^=<]+)", unit)
        if self.target not in unit or text is None:
            return [unit]
        at = self.rng.randrange(text.start(1), text.end(1) - 1)
        changed[at] = self.rng.choice(ALPHABET.replace(bytes([unit[at]]), b""))
        return [bytes(changed)]


class ReplayedContribution(Attempt):
    """A contribution that was accepted, in the clear, once more: over another connection, or by another member."""

    async def make(self, scene: Scene, way: str) -> Trace:
        async with scene.cast(way) as cast:
            assignment = cast.done.result.assignment
            marks = (one_verdict(assignment), no_credit(assignment, cast.accomplice.name))
            if self.rng.random() < 0.5:
                again: list[Message | list[Buffer]] = [encode(cast.done, cast.payload)]
                return Trace(
                    told(await say(scene.invite(way), cast.insider.keys, again)).replace("Identify", ""), marks
                )
            if await cast.accomplice.greet() is None:
                raise Unmade("the accomplice is not welcome")
            await cast.accomplice.send(cast.done, cast.payload)
            answer = await cast.accomplice.expect(Ack, seconds=HEARING)
            credited = answer is not None and answer.accepted
            return Trace("credit for another's work" if credited else "", marks)
