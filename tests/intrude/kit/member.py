"""A node by hand: with a key, perhaps an invite, and the whole protocol, over either transport."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
from random import Random
from typing import Any, Self

import torch

from barnraise import compression
from barnraise.core import ranges
from barnraise.core.errors import AddressError
from barnraise.core.types import KINDS, AnyTask, Blob, Contribution, LinkReport, NodeProfile, Train
from barnraise.transport import Invite, Keys, proof
from barnraise.transport.fallback import connection_for
from barnraise.trust.signatures import RunId, signed
from barnraise.wire.frames import Buffer, decode_from_controller, encode
from barnraise.wire.messages import (
    PROTOCOL_VERSION,
    Assign,
    Chunk,
    Enrol,
    Enrolled,
    Hello,
    Message,
    Pulse,
    RequestTask,
    Stop,
    Welcome,
)

ANSWER_SECONDS = 5.0

Identity = tuple[int, NodeProfile]
"""The session and the profile that a node greets with; the controller refuses a node that changes them often."""


class Member:
    """One node. `heard` are the answers that wait to be looked at."""

    def __init__(self, name: str, invite: Invite, rng: Random, keys: Keys | None = None) -> None:
        self.name, self.invite, self.rng = name, invite, rng
        self.keys = keys or Keys.generate()
        self.heard: asyncio.Queue[Message] = asyncio.Queue(64)
        self.identity: Identity = (rng.randrange(1, 2**53), NodeProfile(1000.0))  # admitted with this one
        self.greeting = self.num_sent = 0
        self.welcome: Welcome | None = None

    async def __aenter__(self) -> Self:
        self.connection = connection_for(self.invite.uri)
        await self.connection.open(self.invite.uri, self.invite.server_key, self.keys)
        try:
            await self.connection.ready(10.0)
        except AddressError:
            await self.connection.close()
            raise
        self._reading = asyncio.ensure_future(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._reading.cancel()
        await self.connection.close()

    async def _read(self) -> None:
        while batch := await self.connection.receive_many():
            for frames in batch:
                message, _ = decode_from_controller(frames)
                if not isinstance(message, Chunk | Pulse):
                    self.learn(message)
                    if self.heard.full():
                        self.heard.get_nowait()
                    self.heard.put_nowait(message)

    def learn(self, message: Message) -> None:
        """Something was said, or heard."""

    async def send(self, message: Message, raw: Buffer | None = None) -> None:
        self.num_sent += 1
        await self.connection.send(encode(message, raw))

    async def expect(self, *kinds: type[Message], seconds: float = ANSWER_SECONDS) -> Any:
        """The next answer of these kinds; None when none comes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    if isinstance(message := await self.heard.get(), kinds):
                        return message
        return None

    async def enrol(self) -> Message | None:
        """Become a node; the answer."""
        message = enrolment(self.invite, self.keys, self.name)
        self.learn(message)
        await self.send(message)
        answer: Message | None = await self.expect(Enrolled, Stop)
        return answer

    async def greet(self, identity: Identity | None = None, seconds: float = ANSWER_SECONDS) -> Welcome | None:
        """Say hello, holding nothing, as before or as another; the answer, None when it is not wanted."""
        self.greeting += 1
        session, profile = identity or self.identity
        message = Hello(PROTOCOL_VERSION, session, self.greeting, profile, -1, kinds=tuple(KINDS))
        self.learn(message)
        await self.send(message)
        answer = await self.expect(Welcome, Stop, seconds=seconds)
        if not isinstance(answer, Welcome):
            return None
        self.identity, self.welcome = (session, profile), answer
        return answer

    async def task(
        self,
        link: LinkReport = LinkReport(),  # noqa: B008
        seconds: float = ANSWER_SECONDS,
    ) -> AnyTask | None:
        """Ask for a task."""
        await self.send(RequestTask(-1, link))
        answer = await self.expect(Assign, seconds=seconds)
        return answer.task if answer is not None else None

    async def join(self) -> bool:
        """Enrol and greet: whether both worked."""
        return isinstance(await self.enrol(), Enrolled) and await self.greet() is not None

    def nothing(self, task: Train) -> tuple[Contribution, bytes]:
        """An update of zeros for a task, and its payload, as an honest worker would write it."""
        assert self.welcome is not None
        uplink = self.welcome.settings.uplink
        codec = compression.create(uplink.codec, **uplink.options)
        data = codec.encode(torch.zeros(ranges.size(task.parameters))).to_bytes()
        return self.offer(task, data), data

    def offer(self, task: Train, data: bytes) -> Contribution:
        """The header of a contribution with this payload."""
        blob = Blob(hashlib.sha256(data).hexdigest(), len(data))
        return self.signed(Contribution.of(task, blob, codec=task.rung, steps=task.local_steps, loss=1.0, seconds=1.0))

    def signed(self, made: Contribution) -> Contribution:
        """As this node's."""
        run = RunId(self.invite.run, self.invite.server_key)
        return signed(run, self.name, made, self.keys.signer)


def enrolment(invite: Invite, keys: Keys, name: str, protocol: int = PROTOCOL_VERSION) -> Enrol:
    """Return the request of a machine with these keys and an invite."""
    nonce, signer = secrets.token_hex(32), keys.signer.public
    mark = proof(invite.secret, invite.server_key, keys.public, name, nonce, signer)
    return Enrol(protocol, invite.token, name, nonce, mark, signer)
