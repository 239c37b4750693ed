"""Names, work and words that are another's."""

from __future__ import annotations

import asyncio
import secrets

import msgspec
import zmq

from barnraise.core.errors import AddressError, WireError
from barnraise.core.types import Contribution
from barnraise.transport import Keys, proof
from barnraise.transport.http.envelope import PUSH, Asker, pack
from barnraise.transport.zmq.options import endpoint, new_context, new_dealer, terminate
from barnraise.wire.following import Copy, Follow, Survey
from barnraise.wire.frames import Buffer, decode_from_controller, encode
from barnraise.wire.messages import (
    PROTOCOL_VERSION,
    Ack,
    Chunk,
    Elsewhere,
    Enrolled,
    Gone,
    Heartbeat,
    Identify,
    Message,
    Offer,
    PayloadChunk,
    Pulse,
    SendPayload,
    Stop,
)

from .base import Attempt, Trace
from .evidence import no_follower, no_foreign_credit, no_message, no_node, no_session
from .keys import hello
from .raw import Hand
from .scene import HEARING, Scene, a_name, say, told
from .ways import HTTP, Unmade


class ForgedRoute(Attempt):
    """Takes the address of another within the transport: a routing id of ZMQ, the session of another key over HTTP."""

    async def make(self, scene: Scene, way: str) -> Trace:
        if way == HTTP:
            return await self._others_session(scene)
        key, session = Keys.generate(), self.rng.randrange(1, 2**53)
        given = self.rng.random() < 0.3  # the form of those that libzmq makes up
        route = b"\x00" + self.rng.randbytes(4) if given else self.rng.choice((b"honest", self.rng.randbytes(9)))
        heard = await _routed(scene, way, key, route, hello(session))
        marks = (no_session(session), no_node(key.public)) + (() if given else (no_message(key.public),))
        return Trace(heard, marks)

    async def _others_session(self, scene: Scene) -> Trace:
        address, server_key = scene.address(HTTP), scene.invite(HTTP).server_key
        owner = Keys.generate()
        async with Hand(address, owner, server_key) as other, Hand(address, Keys.generate(), server_key) as own:
            posing = Asker(other.session, PUSH, own.ciphers)
            try:
                await own.exchange(posing.seal(pack([encode(Heartbeat(0.0))])), other.path)
            except (AddressError, WireError):
                return Trace("", (no_message(owner.public),))
        return Trace("an answer in another's session", (no_message(owner.public),))


async def _routed(scene: Scene, way: str, keys: Keys, route: bytes, word: Message) -> str:
    invite = scene.invite(way)
    context = new_context(1)
    socket = new_dealer(context, keys, invite.server_key, ipv6=False)
    try:
        socket.setsockopt(zmq.ROUTING_ID, route)
        socket.connect(endpoint(invite.host, invite.port))
        await asyncio.to_thread(socket.send_multipart, [bytes(frame) for frame in encode(word)])
        if not await asyncio.to_thread(socket.poll, round(1000 * HEARING)):
            return ""
        return told([decode_from_controller(socket.recv_multipart())[0]])
    finally:
        socket.close(linger=0)
        await terminate(context)


class ForeignAssignment(Attempt):
    """A member submits work on another member's assignment."""

    async def make(self, scene: Scene, way: str) -> Trace:
        async with scene.cast(way) as cast:
            own = cast.done.result
            assert isinstance(own, Contribution)
            number = self.rng.choice((cast.others, max(1, own.assignment + self.rng.randrange(-8, 200))))
            if number == own.assignment:
                number = cast.others
            if await cast.insider.greet() is None:
                raise Unmade("the insider is not welcome")
            lie = cast.insider.signed(msgspec.structs.replace(own, assignment=number))
            await cast.insider.send(Offer(lie), cast.payload)
            await cast.insider.send(PayloadChunk(number, 0), cast.payload[:100])
            await cast.insider.expect(Ack, seconds=HEARING)
            return Trace("", (no_foreign_credit(number, cast.insider.name),))


class ForeignRole(Attempt):
    """A stranger speaks as the controller, or as a standby with an invite for workers; a member as either."""

    async def make(self, scene: Scene, way: str) -> Trace:
        invite, name, digest = scene.invite(way), a_name(self.rng), secrets.token_hex(32)
        keys = Keys.generate()
        nonce = secrets.token_hex(32)
        mark = proof(invite.secret, invite.server_key, keys.public, name, nonce)
        follow = Follow(PROTOCOL_VERSION, invite.token, name, nonce, mark, "zmq://127.0.0.1:1")
        words: list[Message] = [
            Enrolled(name), Ack(1, True), Stop("over"), SendPayload(1, 0), Identify(), Gone(digest),
            Pulse(0.0, 1.0, 1.0), Elsewhere(("zmq://127.0.0.1:1",)), Copy(0), Survey(), follow,
        ]  # fmt: skip
        said: list[Message | list[Buffer]] = [*self.rng.sample(words, 3)]
        said.append(encode(Chunk(digest, 0), b"bytes"))
        if self.rng.random() < 0.5:
            answers = await say(invite, keys, said)
            return Trace(told(answers), (no_follower(name), no_node(keys.public, name)))
        async with scene.cast(way) as cast:
            absent = cast.absent
            absent.num_sent += len(said)
            answers = await say(invite, absent.keys, said)
        heard = [answer for answer in answers if not isinstance(answer, Identify)]
        return Trace(told(heard), (no_follower(name), no_message(absent.keys.public, lambda: absent.num_sent)))
