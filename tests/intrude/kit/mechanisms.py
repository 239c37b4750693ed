"""Weaker ways to connect than the controller's own: without encryption, with a password, and of older versions."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from barnraise.core.errors import AddressError, WireError
from barnraise.transport import Keys
from barnraise.transport.http import marshalling
from barnraise.transport.http.envelope import pack
from barnraise.transport.http.noise import Initiator
from barnraise.wire.frames import Buffer, encode
from barnraise.wire.messages import PROTOCOL_VERSION

from . import raw
from .base import Attempt, Trace
from .evidence import no_node, no_session
from .keys import hello
from .member import enrolment
from .raw import Hand
from .scene import Scene, a_name, say, told
from .ways import HTTP

GREETING_BYTES = 64


class Weaker(Attempt):
    """Says a right enrolment, with an invite that is good, in a way that proves no key."""

    async def make(self, scene: Scene, way: str) -> Trace:
        keys, name = Keys.generate(), a_name(self.rng)
        word = encode(enrolment(scene.invite(way), keys, name))
        marks = (no_node(keys.public, name),)
        if way == HTTP:
            return Trace(await self.posted(scene, word), marks)
        answer = await raw.exchange(scene.address(way), self.over_zmtp([bytes(frame) for frame in word]))
        rest = answer[GREETING_BYTES:]
        return Trace("" if b"ERROR" in rest[:8] or not rest else f"{len(rest)} bytes after the greeting", marks)

    def over_zmtp(self, word: Sequence[bytes]) -> bytes:
        raise NotImplementedError

    async def posted(self, scene: Scene, word: Sequence[Buffer]) -> str:
        raise NotImplementedError


class NullMechanism(Weaker):
    """ZMTP's NULL, which proves nothing; over HTTP messages that are not sealed."""

    def over_zmtp(self, word: Sequence[bytes]) -> bytes:
        return raw.greeting(b"NULL") + raw.READY + raw.message(word)

    async def posted(self, scene: Scene, word: Sequence[Buffer]) -> str:
        bare = pack([word])
        address = scene.address(HTTP)
        if self.rng.random() < 0.5:
            return raw.value(await raw.exchange(address, raw.post(marshalling.write_call(marshalling.EXCHANGE, bare))))
        async with Hand(address, Keys.generate(), scene.invite(HTTP).server_key) as hand:
            sealed = hand.push.seal(bare)
            with contextlib.suppress(WireError, AddressError):
                return f"{len(await hand.exchange(sealed[:25] + bare + bytes(16)))} bytes for what was not sealed"
        return ""


class PlainMechanism(Weaker):
    """ZMTP's PLAIN; over HTTP a login, and methods that other servers have."""

    def over_zmtp(self, word: Sequence[bytes]) -> bytes:
        login = raw.command(b"HELLO", b"\x05admin\x05admin")
        return raw.greeting(b"PLAIN") + login + raw.command(b"INITIATE") + raw.message(word)

    async def posted(self, scene: Scene, word: Sequence[Buffer]) -> str:
        method = self.rng.choice((marshalling.OPEN, marshalling.EXCHANGE, "system.listMethods", "login"))
        request = raw.post(
            marshalling.write_call(method, pack([word])), marshalling.PATH, "Authorization: Basic YWRtaW46YWRtaW4="
        )
        return raw.value(await raw.exchange(scene.address(HTTP), request))


class TransportDowngrade(Weaker):
    """ZMTP 1 and 2, which know no mechanisms, and 3 with another role; HTTP before 1.1, and another handshake."""

    def over_zmtp(self, word: Sequence[bytes]) -> bytes:
        old = b"".join(b"\xff" + (1 + len(part)).to_bytes(8, "big") + b"\x00" + part for part in word)
        return self.rng.choice(
            (
                b"\x01\x00" + old,
                b"\xff" + bytes(8) + b"\x7f\x01\x05\x00\x00" + raw.message(word),
                raw.greeting(b"", version=3) + raw.message(word),
                raw.greeting(b"NULL", version=2) + raw.READY + raw.message(word),
                raw.greeting(b"CURVE", as_server=True) + raw.READY + raw.message(word),
            )
        )

    async def posted(self, scene: Scene, word: Sequence[Buffer]) -> str:
        call = marshalling.write_call(marshalling.EXCHANGE, pack([word]))
        if self.rng.random() < 0.5:
            request = self.rng.choice((b"POST /RPC2\r\n\r\n", b"POST /RPC2 HTTP/0.9\r\nContent-Length: %d\r\n\r\n"))
            request = request.replace(b"%d", b"%d" % len(call)) + call
            return raw.value(await raw.exchange(scene.address(HTTP), request))
        keys, server_key = Keys.generate(), scene.invite(HTTP).server_key
        hand = Hand(scene.address(HTTP), keys, server_key)
        hand.initiator = Initiator(keys, server_key, prologue=b"barnraise http 0")
        try:
            await hand.open()
        except (AddressError, WireError):
            return ""
        finally:
            hand.client.close()
        return "a session by an older handshake"


class ProtocolDowngrade(Attempt):
    """An invite that is good, or a member's key, and an older version of the protocol."""

    async def make(self, scene: Scene, way: str) -> Trace:
        version = self.rng.randrange(PROTOCOL_VERSION)
        if self.rng.random() < 0.5:
            keys, name = Keys.generate(), a_name(self.rng)
            answers = await say(scene.invite(way), keys, [enrolment(scene.invite(way), keys, name, version)])
            return Trace(told(answers), (no_node(keys.public, name),))
        async with scene.cast(way) as cast:
            session = self.rng.randrange(1, 2**53)
            cast.absent.num_sent += 1
            answers = await say(scene.invite(way), cast.absent.keys, [hello(session, version)])
        return Trace(told(answers), (no_session(session),))
