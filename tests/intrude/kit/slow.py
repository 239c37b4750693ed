"""Connections that say little, or nothing, and many of them."""

from __future__ import annotations

import asyncio
import contextlib

from barnraise.core.errors import AddressError
from barnraise.transport.http.server import HEAD_SECONDS
from barnraise.transport.zmq.options import HANDSHAKE_SECONDS

from . import raw
from .base import Attempt, Trace
from .scene import READY, Scene, dialled
from .ways import HTTP

SLACK = 15.0
"""Seconds beyond a limit within which it is kept to."""

DRIP_SECONDS = 0.5
MOST_OPEN = 40
"""Connections of one flood."""


class SlowLoris(Attempt):
    """A greeting, a head or a body, a byte at a time, for as long as the controller allows (or `patience` says).

    It succeeds where it keeps its place for longer than any client may.
    """

    lasting = True

    async def make(self, scene: Scene, way: str) -> Trace:
        limit = HEAD_SECONDS if way == HTTP else HANDSHAKE_SECONDS
        words = self._http() if way == HTTP else raw.greeting(b"CURVE") + raw.frame(bytes(300))
        address, loop = scene.address(way), asyncio.get_running_loop()
        reader, writer = await asyncio.open_connection(address.host, address.port)
        began, said = loop.time(), self.rng.randrange(len(words) // 2)
        ended = asyncio.ensure_future(reader.read(-1))
        try:
            writer.write(words[:said])
            while not ended.done() and loop.time() - began < min(scene.patience, limit + SLACK):
                with contextlib.suppress(OSError):
                    writer.write(words[said : said + 1])
                    said = min(said + 1, len(words) - 2)  # never the end
                await asyncio.wait([ended], timeout=DRIP_SECONDS)
            held = loop.time() - began
            return Trace(f"a place for {held:.0f} s" if not ended.done() and held > limit + SLACK - 1.0 else "")
        finally:
            ended.cancel()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await ended
            writer.close()

    def _http(self) -> bytes:
        if self.rng.random() < 0.5:
            return b"POST /RPC2 HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 4000
        return raw.post(b" " * 4000)


class ConnectionFlood(Attempt):
    """Many connections at once that say nothing. It succeeds where a member cannot come in meanwhile."""

    lasting = True

    async def make(self, scene: Scene, way: str) -> Trace:
        address = scene.address(way)
        dials = [asyncio.open_connection(address.host, address.port) for _ in range(MOST_OPEN)]
        opened = [
            one for one in await asyncio.gather(*dials, return_exceptions=True) if not isinstance(one, BaseException)
        ]
        try:
            async with dialled(scene.invite(way), scene.casts[way].absent.keys, ready=False) as connection:
                try:
                    await connection.ready(2 * READY)
                except AddressError:
                    return Trace("a member was kept out")
        finally:
            for _, writer in opened:
                writer.close()
        return Trace()
