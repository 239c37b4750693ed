"""Strangers without an invite send bytes that no client of ours would send, at both doors of a controller."""

from __future__ import annotations

import asyncio
import contextlib
import random

from tests.intrude.kit.raw import greeting

from barnraise.transport.http import marshalling

GREETING = greeting(b"CURVE")

_POST = b"POST /RPC2 HTTP/1.1\r\nHost: x\r\n"
_ENTITIES = b"<!DOCTYPE l [<!ENTITY a 'lol'><!ENTITY b '&a;&a;&a;&a;&a;&a;&a;&a;'>]>"
KNOCKS = (
    b"",
    GREETING,
    GREETING[:11],
    GREETING + b"\x04\x19\x05HELLO" + bytes(200),
    GREETING + b"\x06\xff\xff\xff\xff\xff\xff\xff\xff",
    GREETING.replace(b"CURVE", b"NULL\x00") + b"\x04\x19\x05READY" + bytes(20),
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    b"GET / HTTP/1.0\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    _POST + b"Content-Length: 5000\r\n\r\nshort",
    _POST + b"Content-Length: -1\r\n\r\nhello",
    _POST + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n",
    _POST + b"Content-Length: 5\r\nContent-Length: 50\r\n\r\nhello",
    _POST + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG",
    _POST + b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\nx",
    _POST + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n",
    _POST + b"A: \x00\r\n\r\n",
    _POST + b"A: b\r\n" * 2000 + b"\r\n",
    b"POST /RPC2/" + b"00" * 16 + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc",
    b"POST /RPC2/\xff\xfe HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
)
BODIES = (
    b"",
    b"<methodCall>" * 300,
    _ENTITIES + b"<methodCall><methodName>&b;</methodName></methodCall>",
    "<?xml version='1.0' encoding='utf-16'?><methodCall/>".encode("utf-16"),
    b"<methodCall>\x00</methodCall>",
    b"<" + b"a" * 3000,
    marshalling.write_call("system.listMethods", b""),
    marshalling.write_call(marshalling.OPEN, b"\xff" * 96),
    marshalling.write_call(marshalling.OPEN, b""),
    marshalling.write_call(marshalling.EXCHANGE, bytes(100)),
)
MOST_OPEN = 32


class Strangers:
    """Comes to `ports`, one connection after the other, and leaves the last few of them open."""

    def __init__(self, ports: list[int], rng: random.Random) -> None:
        self.ports, self.rng, self.num_knocks = ports, rng, 0
        self._open: list[asyncio.StreamWriter] = []

    async def knock(self) -> None:
        """One more connection, with something to say."""
        rng = self.rng
        self.num_knocks += 1
        while len(self._open) >= MOST_OPEN:
            self._open.pop(0).close()
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", rng.choice(self.ports))
            writer.write(self._words())
            if rng.random() < 0.3:
                self._open.append(writer)
            else:
                writer.close()

    def _words(self) -> bytes:
        rng = self.rng
        pick = rng.random()
        if pick < 0.6:
            words = bytearray(rng.choice(KNOCKS))
        elif pick < 0.9:
            body = rng.choice(BODIES)
            words = bytearray(_POST + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        else:
            return rng.randbytes(rng.choice((1, 64, 4000)))
        if words and rng.random() < 0.3:
            words[rng.randrange(len(words))] ^= 1 << rng.randrange(8)
        return bytes(words)

    def go(self) -> None:
        """Hang up."""
        for writer in self._open:
            writer.close()
        self._open.clear()
