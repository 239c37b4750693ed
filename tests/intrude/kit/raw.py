"""Bytes of one's own making at a door: ZMTP, and HTTP with an XML-RPC session opened by hand."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from barnraise.core.errors import WireError
from barnraise.transport import Keys
from barnraise.transport.base import Address
from barnraise.transport.http import marshalling
from barnraise.transport.http.client import HttpClient
from barnraise.transport.http.envelope import ENVELOPE_LIMIT, PULL, PUSH, Asker
from barnraise.transport.http.noise import Initiator

ANSWER_BYTES = 1 << 16
SECONDS = 0.5

MORE, LONG, COMMAND = 1, 2, 4
"""Flags of a ZMTP frame."""


def greeting(mechanism: bytes, version: int = 3, *, as_server: bool = False) -> bytes:
    """Return the bytes that begin a ZMTP 3 connection."""
    return (
        b"\xff" + bytes(8) + b"\x7f" + bytes([version, 0]) + mechanism.ljust(20, b"\0") + bytes([as_server]) + bytes(31)
    )


def frame(body: bytes, flags: int = 0) -> bytes:
    """A ZMTP frame; from 256 bytes on it is a long one."""
    if len(body) > 255:
        return bytes([flags | LONG]) + len(body).to_bytes(8, "big") + body
    return bytes([flags, len(body)]) + body


def message(frames: Sequence[bytes]) -> bytes:
    """A message of several frames."""
    return b"".join(frame(body, MORE) for body in frames[:-1]) + frame(frames[-1])


def command(name: bytes, body: bytes = b"") -> bytes:
    """A ZMTP command, as handshakes are made of."""
    return frame(bytes([len(name)]) + name + body, COMMAND)


READY = command(b"READY", b"\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x00")


async def exchange(address: Address, data: bytes, seconds: float = SECONDS) -> bytes:
    """Return the answer of a door until it hangs up or is silent for long.

    Raises OSError when no server listens there.
    """
    reader, writer = await asyncio.open_connection(address.host, address.port)
    answer = b""
    try:
        writer.write(data)
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(seconds):
                while (more := await reader.read(ANSWER_BYTES)) and len(answer) < ANSWER_BYTES:
                    answer += more
    finally:
        writer.close()
    return answer


def post(body: bytes, path: str = marshalling.PATH, *headers: str) -> bytes:
    """An HTTP request whose length is right."""
    lines = [f"POST {path} HTTP/1.1", "Host: x", "Connection: close", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def value(answer: bytes) -> str:
    """Return the content of an HTTP answer besides a status or a fault; "": nothing."""
    _, _, document = answer.partition(b"\r\n\r\n")
    try:
        return f"a value of {len(marshalling.read_response(document))} bytes"
    except WireError:
        return ""


class Hand:
    """An XML-RPC session by hand."""

    def __init__(self, address: Address, keys: Keys, server_key: str) -> None:
        self.client = HttpClient(address)
        self.initiator = Initiator(keys, server_key)

    async def open(self) -> Hand:
        """Shake hands. WireError when that is refused, HttpError when nothing is answered."""
        answer = await self._call(marshalling.PATH, marshalling.OPEN, self.initiator.start())
        self.session, self.ciphers = self.initiator.finish(answer)
        self.push, self.pull = (Asker(self.session, channel, self.ciphers) for channel in (PUSH, PULL))
        return self

    @property
    def path(self) -> str:
        return f"{marshalling.PATH}/{self.session.hex()}"

    async def exchange(self, envelope: bytes, path: str = "") -> bytes:
        """The sealed reply to a request. WireError for a fault, HttpError for another status."""
        return await self._call(path or self.path, marshalling.EXCHANGE, envelope)

    async def _call(self, path: str, method: str, argument: bytes) -> bytes:
        call = marshalling.write_call(method, argument)
        limit = marshalling.limit(ENVELOPE_LIMIT)
        return marshalling.read_response(await self.client.post(path, call, limit=limit, seconds=5.0))

    async def __aenter__(self) -> Hand:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        self.client.close()
