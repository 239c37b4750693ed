"""A relay on the path between client and controller.

It passes on the client's bytes, unit by unit (ZMTP frames, HTTP requests), and may change them.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from typing import Self

from barnraise.transport.base import Address

from .raw import LONG
from .ways import HTTP

GREETING_BYTES = 64
LARGEST = 1 << 22

Change = Callable[[int, bytes], list[bytes]]
"""Returns the units to send instead of a unit, given the number of units before it on its connection.

A greeting of ZMTP is a unit, too, and passes unchanged.
"""


class Relay:
    """Listens on loopback, and dials `target` for each connection. `said` are the units of all of them, in order."""

    def __init__(self, target: Address, way: str, change: Change = lambda number, unit: [unit]) -> None:
        self.target, self.way, self.change = target, way, change
        self.said: list[bytes] = []
        self.changed = asyncio.Event()  # the relay sent a unit that differs from the client's
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        far: asyncio.StreamWriter | None = None
        back: asyncio.Future[None] | None = None
        with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
            answers, far = await asyncio.open_connection(self.target.host, self.target.port)
            back = asyncio.ensure_future(_pass_on(answers, writer))
            number = 0
            if self.way != HTTP:
                number, left = 1, GREETING_BYTES
                while left:  # each end waits for a part of the other's before it continues
                    self.said.append(piece := await reader.read(left))
                    far.write(piece)
                    left = left - len(piece) if piece else 0
            async for unit in units(reader, self.way):
                self.said.append(unit)
                instead = self.change(number, unit)
                far.write(b"".join(instead))
                await far.drain()
                if instead != [unit]:
                    self.changed.set()
                number += 1
        if back is not None:
            back.cancel()
        for one in (writer, far):
            if one is not None:
                one.close()
        self._tasks.discard(task)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


async def units(reader: asyncio.StreamReader, way: str) -> AsyncIterator[bytes]:
    """Yield the client's bytes (over ZMQ after its greeting), in units with a meaning.

    Raises EOFError at the end.
    """
    while True:
        yield await (_request(reader) if way == HTTP else _frame(reader))


async def _request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    return head + await reader.readexactly(min(int(length[1]), LARGEST) if length else 0)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    flags = await reader.readexactly(1)
    size = await reader.readexactly(8 if flags[0] & LONG else 1)
    return flags + size + await reader.readexactly(min(int.from_bytes(size, "big"), LARGEST))
