"""The parts that attempts share: the controller's address, invites, and members that the kit plays itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import NamedTuple

from barnraise.core.errors import AddressError, RunFailedError
from barnraise.core.types import Train
from barnraise.transport import Connection, Invite, Keys
from barnraise.transport.base import Address
from barnraise.transport.fallback import connection_for
from barnraise.wire.frames import Buffer, decode_from_controller, encode
from barnraise.wire.messages import Ack, Leave, Message, Offer, Stop

from .member import Member
from .ways import HTTP, WAYS, Unmade

HEARING = 0.4
"""Seconds in which an answer would come."""

READY = 5.0
"""Seconds for a handshake that should succeed."""


def by_door(invite: Invite, way: str) -> Invite:
    """The way in through one door alone."""
    if way == HTTP:
        return replace(invite, scheme="xmlrpc", port=invite.http_port, http_port=0)
    return replace(invite, http_port=0)


class Invites(NamedTuple):
    """One invite for all members that the kit plays, and three that the controller refuses: expired, used up, taken
    back."""

    open: Invite
    dead: Sequence[Invite]


@dataclass
class Cast:
    """Members by one door: one that is insider, with a contribution that was accepted, an accomplice with another task,
    one that is enrolled and away, and one that was revoked with its connection open."""

    insider: Member
    accomplice: Member
    absent: Member
    outcast: Member
    done: Offer
    payload: bytes
    others: int  # an assignment of the accomplice's


class Scene:
    """`revoke` puts a node out of the run, as its host can; it returns once that has happened."""

    def __init__(self, invites: Invites, revoke: Callable[[str], None], rng: Random, *, patience: float) -> None:
        self.invites, self.revoke, self.rng = invites, revoke, rng
        self.patience = patience  # seconds that those who drip hold on at the most
        self.casts: dict[str, Cast] = {}
        self._turn = {way: asyncio.Lock() for way in WAYS}

    def invite(self, way: str) -> Invite:
        return by_door(self.invites.open, way)

    def address(self, way: str) -> Address:
        """Where a door is."""
        invite = self.invite(way)
        return Address(invite.scheme, invite.host, invite.port)

    @contextlib.asynccontextmanager
    async def cast(self, way: str) -> AsyncIterator[Cast]:
        """The members behind a door, for one attempt at a time."""
        async with self._turn[way]:
            yield self.casts[way]

    @contextlib.asynccontextmanager
    async def prepared(self) -> AsyncIterator[Scene]:
        """Let the members join, and stay until the block ends.

        Raises RunFailedError when the controller does not admit them.
        """
        async with contextlib.AsyncExitStack() as stack:
            for way in WAYS:
                self.casts[way] = await self._play(way, stack)
            yield self

    async def _play(self, way: str, stack: contextlib.AsyncExitStack) -> Cast:
        async def joined(role: str) -> Member:
            member = await stack.enter_async_context(Member(f"{role}-{way}", self.invite(way), self.rng))
            if not await member.join():
                raise RunFailedError(f"the intrusion kit's own member {member.name} is not let in")
            return member

        insider, accomplice, outcast = await joined("insider"), await joined("accomplice"), await joined("outcast")
        async with Member(f"absent-{way}", self.invite(way), self.rng) as absent:
            await absent.join()
            await absent.send(Leave())
            await asyncio.sleep(HEARING)
        task, others = await insider.task(), await accomplice.task()
        if not isinstance(task, Train) or others is None:
            raise RunFailedError("the intrusion kit's own members are given no tasks")
        done, payload = insider.nothing(task)
        await insider.send(Offer(done), payload)
        await insider.expect(Ack)
        await asyncio.to_thread(self.revoke, outcast.name)
        return Cast(insider, accomplice, absent, outcast, done=Offer(done), payload=payload, others=others.id)


@contextlib.asynccontextmanager
async def dialled(invite: Invite, keys: Keys, *, ready: bool = True) -> AsyncIterator[Connection]:
    """A connection of ours with these keys; Unmade when it should be `ready` and is not."""
    connection = connection_for(invite.uri)
    try:
        await connection.open(invite.uri, invite.server_key, keys)
        if ready:
            try:
                await connection.ready(READY)
            except AddressError as error:
                raise Unmade(str(error)) from None
        yield connection
    finally:
        await connection.close()


async def hear(connection: Connection, seconds: float = HEARING) -> list[Message]:
    """Return the answers; the wait ends with the first answer."""
    try:
        async with asyncio.timeout(seconds):
            return [decode_from_controller(frames)[0] for frames in await connection.receive_many()]
    except TimeoutError:
        return []


async def say(
    invite: Invite, keys: Keys, messages: Sequence[Message | list[Buffer]], *, ready: bool = True
) -> list[Message]:
    """Dial, say this, and listen for a while."""
    async with dialled(invite, keys, ready=ready) as connection:
        for message in messages:
            frames = message if isinstance(message, list) else encode(message)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(READY):
                    await connection.send(frames)
        return await hear(connection)


def told(answers: Sequence[Message]) -> str:
    """Return the answers that the controller should give to no stranger.

    A stranger may hear only that it may not take part, and why.
    """
    return ", ".join(type(answer).__name__ for answer in answers if not isinstance(answer, Stop))


def a_name(rng: Random) -> str:
    """A name that no node has."""
    return f"eve-{rng.getrandbits(48):012x}"
