"""Little that is to become much: MessagePack, compressed bodies and payloads, XML."""

from __future__ import annotations

import asyncio
import gzip
import random
import zlib
from collections.abc import Callable

from barnraise.core.types import Train
from barnraise.transport import Keys
from barnraise.transport.http import marshalling
from barnraise.wire.messages import ENROL_LIMIT, WORKER_HEADER_LIMIT, Ack, Identify, Offer

from . import raw
from .base import Attempt, Trace
from .evidence import no_credit, no_node
from .scene import HEARING, Scene, say, told
from .ways import HTTP, Unmade

ZEROS = 8 << 20
LENGTHS_THAT_LIE = (
    b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff",
    b"\xc9\xff\xff\xff\xff\x01", b"\xdc\xff\xff", b"\xde\xff\xff",
)  # fmt: skip
"""Beginnings of MessagePack that promise more than comes."""


def deep(levels: int, *, lists: bool) -> bytes:
    """Return MessagePack of `levels` lists or maps, one in the other."""
    return (b"\x91" if lists else b"\x81\xa1a") * levels + b"\xc0"


def wide(size: int) -> bytes:
    """Return MessagePack of a list of `size` empty maps: a byte each here, and tens of bytes once they are objects."""
    return b"\xdd" + size.to_bytes(4, "big") + b"\x80" * size


class MsgpackBomb(Attempt):
    """Headers that decode to a thousand times their size, or beyond any depth: of a stranger, and of a member."""

    async def make(self, scene: Scene, way: str) -> Trace:
        rng = self.rng
        size = rng.choice((ENROL_LIMIT, ENROL_LIMIT, WORKER_HEADER_LIMIT, 1 << 19)) - 40
        bomb = rng.choice(
            (wide(size), deep(size // 3, lists=False), deep(size, lists=True), rng.choice(LENGTHS_THAT_LIE))
        )
        kind = rng.choice((b"Enrol", b"Hello", b"Offer", b"Next", b"Follow"))
        header = b"\x82\xa1t" + bytes([0xA0 + len(kind)]) + kind + b"\xa5extra" + bomb
        if rng.random() < 0.5:
            keys = Keys.generate()
            return Trace(told(await say(scene.invite(way), keys, [[header]])), (no_node(keys.public),))
        async with scene.cast(way) as cast:
            cast.absent.num_sent += 1
            answers = await say(scene.invite(way), cast.absent.keys, [[header]])
        return Trace(told([answer for answer in answers if not isinstance(answer, Identify)]))


class DecompressionBomb(Attempt):
    """Zeros by the megabyte in few bytes: as an HTTP body, and as the payload of a contribution."""

    async def make(self, scene: Scene, way: str) -> Trace:
        if way == HTTP and self.rng.random() < 0.7:
            coding, body = self.rng.choice(((b"gzip", gzip.compress), (b"deflate", zlib.compress), (b"br", bytes)))
            small = _compressed(body)[: marshalling.HANDSHAKE_BYTES]
            request = raw.post(small, marshalling.PATH, f"Content-Encoding: {coding.decode()}")
            return Trace(raw.value(await raw.exchange(scene.address(way), request)))
        async with scene.cast(way) as cast:
            node = cast.insider
            if await node.greet() is None:
                raise Unmade("the insider is not welcome")
            task = await node.task(seconds=1.0)
            if not isinstance(task, Train):
                raise Unmade("there is no task to hand a bomb in for")
            honest, data = node.nothing(task)
            bomb = data[:24] + _compressed(zlib.compress)[: len(data) - 24]
            await node.send(Offer(node.offer(task, bomb)), bomb)
            answer = await node.expect(Ack, seconds=HEARING)
            credited = answer is not None and answer.assignment == task.id and answer.accepted
            mark = no_credit(task.id, node.name)
            task = await node.task(seconds=1.0)
            if isinstance(task, Train):  # honest work in between, or it is sent away
                honest, data = node.nothing(task)
                await node.send(Offer(honest), data)
                await node.expect(Ack, seconds=1.0)
            return Trace("a bomb was taken for an update" if credited else "", (mark,))


def _compressed(method: Callable[[bytes], bytes]) -> bytes:
    return method(bytes(ZEROS if method is not bytes else 2000))


class XmlBomb(Attempt):
    """Entities that multiply or are elsewhere, depth, width and encodings, in an XML-RPC call."""

    ways = (HTTP,)

    async def make(self, scene: Scene, way: str) -> Trace:
        asked: list[str] = []
        server = await asyncio.start_server(
            lambda *_: asked.append("an address that an entity names was dialled"), "127.0.0.1", 0
        )
        async with server:
            port = server.sockets[0].getsockname()[1]
            document = self.rng.choice(DOCUMENTS)(self.rng, f"http://127.0.0.1:{port}/x")
            answer = await raw.exchange(scene.address(way), raw.post(document[: marshalling.HANDSHAKE_BYTES]))
        return Trace("".join(asked) or ("a file's contents" if b"root:" in answer else raw.value(answer)))


def _call(doctype: str, name: str) -> bytes:
    call = f"<methodCall><methodName>{name}</methodName><params><param><value><base64>QUFB</base64></value></param>"
    return f"<?xml version='1.0'?>{doctype}{call}</params></methodCall>".encode()


def _laughs(rng: random.Random, url: str) -> bytes:
    entities = "<!ENTITY a0 'lol'>" + "".join(
        f"<!ENTITY a{level + 1} '{f'&a{level};' * 10}'>" for level in range(rng.randrange(2, 30))
    )
    return _call(f"<!DOCTYPE l [{entities}]>", "&a9;")


def _quadratic(rng: random.Random, url: str) -> bytes:
    return _call(f"<!DOCTYPE l [<!ENTITY a '{'a' * 1500}'>]>", "&a;" * 500)


def _elsewhere(rng: random.Random, url: str) -> bytes:
    where = rng.choice((url, "file:///etc/passwd"))
    doctype = rng.choice(
        (
            f"<!DOCTYPE l SYSTEM '{where}'>",
            f"<!DOCTYPE l [<!ENTITY a SYSTEM '{where}'>]>",
            f"<!DOCTYPE l [<!ENTITY % a SYSTEM '{where}'> %a;]>",
        )
    )
    return _call(doctype, "&a;")


def _odd(rng: random.Random, url: str) -> bytes:
    return rng.choice(
        (
            b"<methodCall>" * 300,
            b"<" + b"a" * 4000,
            b"<methodCall " + b" ".join(b"a%d='1'" % number for number in range(300)) + b"/>",
            b"<?x " + b"y" * 3000 + b"?>" + _call("", "barnraise.open"),
            b"<!--" + b"-" * 3000 + b"-->" + _call("", "barnraise.open"),
            _call("", "barnraise.open").decode().encode("utf-16"),
            b"<methodCall>\x00</methodCall>",
        )
    )


DOCUMENTS: tuple[Callable[[random.Random, str], bytes], ...] = (_laughs, _quadratic, _elsewhere, _odd)
