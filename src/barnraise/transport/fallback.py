"""A connection with a second transport: HTTP where ZMQ does not get through."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from barnraise.core.errors import AddressError
from barnraise.transport import create
from barnraise.transport.base import BATCH_MESSAGES, Connection, parse
from barnraise.transport.identity import Keys
from barnraise.wire.frames import Buffer

PATIENCE = 5.0
"""Seconds for which one transport is tried before the next."""

LOST_PATIENCE = 12.0
"""Seconds for which a working transport may be lost (a controller restarts) before all are tried again."""

LOOK_SECONDS = 0.25

_NAMES = {"zmq": "ZMQ", "xmlrpc": "HTTP"}


def connection_for(uri: str, say: Callable[[str], None] = lambda text: None) -> Connection:
    """Create the connection for one address, or for several separated by spaces, best first.

    Open it with the same `uri`. `say` gets a message when another than the first is used.
    """
    return FallbackConnection(say) if " " in uri else create(parse(uri).scheme).connection()


class FallbackConnection(Connection):
    """Dials the addresses in rotation until one answers, and all of them again when that one is lost for long."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say
        self._closed = False
        self._current: Connection | None = None
        self._connects_before = 0
        self._trouble: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None

    async def open(self, uri: str, server_key: str, keys: Keys) -> None:
        self._uris, self._server_key, self._keys = uri.split(), server_key, keys
        self._task = asyncio.ensure_future(self._keep_connected())

    async def _keep_connected(self) -> None:
        while True:
            for uri in self._uris:
                connection = create(parse(uri).scheme).connection()
                try:
                    await connection.open(uri, self._server_key, self._keys)
                    await connection.ready(PATIENCE)
                    self._tell(uri)
                    await self._use(connection)
                    break
                except AddressError as error:
                    self._trouble[uri] = str(error).partition(" s: ")[2] or str(error)
                except Exception as error:  # after any error this task continues: no other task would dial again
                    self._trouble[uri] = f"{type(error).__name__}: {error}"
                finally:
                    self._current, self.connected = None, False
                    await connection.close()
            await asyncio.sleep(LOOK_SECONDS)

    async def _use(self, connection: Connection) -> None:
        """Send and receive over this connection until it is lost for long."""
        loop = asyncio.get_running_loop()
        seen = loop.time()
        self._current = connection
        while loop.time() - seen < LOST_PATIENCE:
            if connection.connected:
                seen = loop.time()
            self.connected = connection.connected
            self.num_connects = self._connects_before + connection.num_connects
            self._changed.wake()
            await asyncio.sleep(LOOK_SECONDS)
        self._connects_before = self.num_connects

    def _tell(self, uri: str) -> None:
        for other in self._uris[: self._uris.index(uri)]:
            reason = self._trouble[other].partition(": ")[0]
            self._say(f"{_words(other)} does not answer ({reason}); using {_words(uri)}")

    async def _diagnosis(self) -> str:
        found = [f"{_NAMES[parse(uri).scheme]}: {text}" for uri, text in self._trouble.items()]
        return "; ".join(found) or "none of its addresses has answered yet"

    async def send(self, frames: Sequence[Buffer]) -> bool:
        while not self._closed:
            if self._current is None:
                await self._changed.wait()
            elif await self._current.send(frames):
                return True
        return False

    async def receive_many(self, limit: int = BATCH_MESSAGES) -> list[list[Buffer]]:
        while not self._closed:
            connection = self._current
            if connection is None:
                await self._changed.wait()
            elif batch := await connection.receive_many(limit):
                self.num_connects = self._connects_before + connection.num_connects
                return batch
        return []

    def redial(self) -> None:
        if self._current is not None:
            self._current.redial()

    async def close(self, linger: float = 0.0) -> None:
        self._closed = True
        current, self._current = self._current, None
        if current is not None:
            await current.close(linger)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.connected = False
        self._changed.wake()


def _words(uri: str) -> str:
    address = parse(uri)
    return f"{_NAMES.get(address.scheme, address.scheme)} at {address.host}:{address.port}"
