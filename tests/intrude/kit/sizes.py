"""Too much, and what never ends."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import zmq

from barnraise.core.errors import AddressError, WireError
from barnraise.transport import Invite, Keys
from barnraise.transport.http import marshalling
from barnraise.transport.http.envelope import pack
from barnraise.transport.zmq.options import endpoint, new_context, new_dealer, terminate
from barnraise.wire.frames import encode
from barnraise.wire.messages import FRAME_LIMIT, Heartbeat

from . import raw
from .base import Attempt, Trace
from .evidence import no_message
from .raw import Hand
from .relay import Relay
from .scene import READY, Scene
from .ways import HTTP, Unmade

ENDLESS_BYTES = 4 << 20
"""Size of a message that does not end: several times the size that the controller takes of one message."""

HANDSHAKE_UNITS = 3
"""A greeting and two commands."""


class OversizeFrame(Attempt):
    """A frame, a body or a batch beyond what is ever accepted, announced or sent."""

    async def make(self, scene: Scene, way: str) -> Trace:
        keys = Keys.generate()
        marks = (no_message(keys.public),)
        if way != HTTP:
            if self.rng.random() < 0.3:  # before there is a key
                head = raw.greeting(b"CURVE") + b"\x06" + self.rng.choice((1 << 40, (1 << 64) - 1)).to_bytes(8, "big")
                await raw.exchange(scene.address(way), head + bytes(1000))
                return Trace("", marks)
            giant = bytes(FRAME_LIMIT + self.rng.choice((2000, 100_000)))
            hung_up = await _send_parts(scene.invite(way), keys, [b"small", giant])
            return Trace("" if hung_up else "nothing for a giant frame, not even the end", marks)
        if self.rng.random() < 0.5:
            body = bytes(self.rng.choice((marshalling.HANDSHAKE_BYTES + 1, 1 << 20)))
            chunked = b"POST /RPC2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % len(body) + body
            request = self.rng.choice((raw.post(body), chunked))
            return Trace(raw.value(await raw.exchange(scene.address(way), request)), marks)
        async with Hand(scene.address(way), keys, scene.invite(way).server_key) as hand:
            batch = pack([[encode(Heartbeat(0.0))[0], bytes(self.rng.choice((20_000, FRAME_LIMIT)))]])
            with contextlib.suppress(WireError, AddressError):
                return Trace(f"{len(await hand.exchange(hand.push.seal(batch)))} bytes for a giant batch", marks)
        return Trace("", marks)


class UnfinishedMessage(Attempt):
    """A message whose last part never comes: ZMQ keeps parts for as long as there are more; an HTTP body or batch that
    says it is longer than it is."""

    async def make(self, scene: Scene, way: str) -> Trace:
        keys = Keys.generate()
        marks = (no_message(keys.public),)
        if way != HTTP:
            parts = [bytes(1 << 16)] * (ENDLESS_BYTES >> 16)
            async with Relay(scene.address(way), way, Withholding(len(parts) - 1)) as relay:
                invite = replace(scene.invite(way), host="127.0.0.1", port=relay.port)
                hung_up = await _send_parts(invite, keys, parts, until=relay.changed)
            if not hung_up and not relay.changed.is_set():
                raise Unmade("its parts did not come so far")
            return Trace("" if hung_up else f"{ENDLESS_BYTES} bytes of it were kept", marks)
        if self.rng.random() < 0.5:
            request = raw.post(marshalling.write_call(marshalling.OPEN, bytes(96)))[: -self.rng.randrange(1, 90)]
            return Trace(raw.value(await raw.exchange(scene.address(way), request)), marks)
        async with Hand(scene.address(way), keys, scene.invite(way).server_key) as hand:
            batch = pack([encode(Heartbeat(0.0))])
            short = self.rng.choice((batch[:-3], b"\xff" + batch[1:], batch[:1] + b"\xff" + batch[2:]))
            with contextlib.suppress(WireError, AddressError):
                return Trace(f"{len(await hand.exchange(hand.push.seal(short)))} bytes for half a batch", marks)
        return Trace("", marks)


async def _send_parts(invite: Invite, keys: Keys, parts: list[bytes], until: asyncio.Event | None = None) -> bool:
    """Send a message, and wait for a while (from `until` on): whether it was hung up on."""
    context = new_context(1)
    socket = new_dealer(context, keys, invite.server_key, ipv6=False)
    socket.setsockopt(zmq.RECONNECT_IVL, -1)
    ended = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    try:
        socket.connect(endpoint(invite.host, invite.port))
        socket.send_multipart(parts)
        if until is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(until.wait(), READY)
        return bool(await asyncio.to_thread(ended.poll, round(1000 * READY)))
    finally:
        socket.disable_monitor()
        ended.close(linger=0)
        socket.close(linger=0)
        await terminate(context)


class Withholding:
    """A relay that lets a client's handshake and `frames` frames of its message through, and nothing more."""

    def __init__(self, frames: int) -> None:
        self.most = HANDSHAKE_UNITS + frames

    def __call__(self, number: int, unit: bytes) -> list[bytes]:
        return [unit] if number < self.most else []
