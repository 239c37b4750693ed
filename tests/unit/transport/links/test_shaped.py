"""A connection over an emulated link: rate, delay, order and what gives way to what, over real sockets on loopback."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from barnraise import transport
from barnraise.transport import Keys, Listener
from barnraise.transport.links.link import BrownOuts, Link, LinkDirection
from barnraise.transport.links.presets import parse
from barnraise.transport.links.shaped import ShapedConnection
from barnraise.wire.frames import num_bytes

SERVER = Keys.generate()
CHUNK = 1 << 18


def run(test: Coroutine[Any, Any, None]) -> None:
    async def in_time() -> None:
        await asyncio.wait_for(test, 60.0)

    asyncio.run(in_time())


@asynccontextmanager
async def joined(link: Link, scheme: str = "zmq") -> AsyncIterator[tuple[Listener, ShapedConnection]]:
    network = transport.create(scheme)
    listener, connection = network.listener(), ShapedConnection(network.connection(), link)
    uri = await listener.bind("inproc://shaped" if scheme == "inproc" else "zmq://127.0.0.1:0", SERVER)
    await connection.open(uri, SERVER.public, Keys.generate())
    try:
        await connection.ready(10.0)
        yield listener, connection
    finally:
        await connection.close()
        await listener.close()


async def collect(receive: Any, total: int) -> float:
    """Receive bulk until `total` bytes are here: seconds since the first message."""
    received, first = 0, 0.0
    while received < total:
        for message in await receive():
            frames = getattr(message, "frames", message)
            received += sum(map(num_bytes, frames))
            first = first or time.monotonic()
    return time.monotonic() - first


@pytest.mark.parametrize("direction", ["up", "down"])
@pytest.mark.parametrize("rate", [2e6, 10e6])
def test_rate_is_right_within_three_percent(direction: str, rate: float) -> None:
    link = Link(LinkDirection(rate, 0.01), LinkDirection(rate, 0.01))
    count = max(5, round(rate * 1.2 / CHUNK))

    async def measure() -> float:
        async with joined(link) as (listener, connection):
            await connection.send([b"hello"])
            peer = (await listener.receive()).peer
            total = count * (CHUNK + 6)
            message = [b"header", bytes(CHUNK)]
            if direction == "up":
                received = asyncio.ensure_future(collect(listener.receive_many, total))
                for _ in range(count):
                    await connection.send(message)
            else:
                received = asyncio.ensure_future(collect(connection.receive_many, total))
                for _ in range(count):
                    while not listener.send(peer, message):  # its queue is full
                        await asyncio.sleep(0.01)
            return (total - CHUNK - 6) / await received

    async def test() -> None:
        measured: list[float] = []
        while not measured or (measured[-1] < 0.97 * rate and len(measured) < 5):  # a busy machine only makes it slower
            measured.append(await measure())
        assert max(measured) == pytest.approx(rate, rel=0.03)

    run(test())


def test_delay_is_there_and_back() -> None:
    async def test() -> None:
        async with joined(parse("100mbit/80ms")) as (listener, connection):
            ups, trips = [], []
            for _ in range(5):  # a busy machine only makes them longer
                began = time.monotonic()
                await connection.send([b"ping"])
                received = await listener.receive()
                ups.append(time.monotonic() - began)
                listener.send(received.peer, [b"pong"])
                assert await connection.receive() == [b"pong"]
                trips.append(time.monotonic() - began)
            assert 0.080 <= min(ups) < 0.110
            assert 0.160 <= min(trips) < 0.210

    run(test())


def test_single_frames_do_not_wait_for_bulk() -> None:
    async def test() -> None:
        async with joined(parse("10mbit/10ms")) as (listener, connection):

            async def upload() -> None:
                for _ in range(6):
                    await connection.send([b"part", bytes(CHUNK)])

            upload_task = asyncio.ensure_future(upload())
            await asyncio.sleep(0.3)
            began = time.monotonic()
            await connection.send([b"heartbeat"])
            while True:
                batch = [bytes(message.frames[0]) for message in await listener.receive_many()]
                if b"heartbeat" in batch:
                    break
            assert time.monotonic() - began < 0.2  # a part alone takes 0.2 s
            upload_task.cancel()

    run(test())


def test_order_holds_and_bulk_does_not_pass_what_was_sent_before() -> None:
    link = parse("20mbit/5ms/30ms/2%")

    async def test() -> None:
        async with joined(link) as (listener, connection):

            async def send() -> None:
                for number in range(60):
                    await connection.send([b"offer %d" % number])
                    await connection.send([b"part %d" % number, bytes(2000)])

            sending = asyncio.ensure_future(send())
            seen: list[bytes] = []
            while len(seen) < 120:
                seen += [bytes(message.frames[0]) for message in await listener.receive_many()]
            await sending
            offers = [int(name[6:]) for name in seen if name.startswith(b"offer")]
            parts = [int(name[5:]) for name in seen if name.startswith(b"part")]
            assert offers == parts == list(range(60))
            assert all(seen.index(b"offer %d" % n) < seen.index(b"part %d" % n) for n in range(60))

    run(test())


def test_a_brown_out_is_a_pause() -> None:
    link = Link(LinkDirection(1e7, 0.0), LinkDirection(1e7, 0.0), BrownOuts(1.0, 0.5))

    async def test() -> None:
        async with joined(link) as (listener, connection):
            gaps, last = [], time.monotonic()
            for number in range(200):
                await connection.send([b"%d" % number])
                received = await listener.receive()
                assert bytes(received.frames[0]) == b"%d" % number
                gaps.append(time.monotonic() - last)
                last = time.monotonic()
                await asyncio.sleep(0.01)
            assert 0.40 < max(gaps) < 0.90
            assert sum(gap > 0.3 for gap in gaps) >= 2

    run(test())


def test_messages_in_transit_are_lost_on_redial() -> None:
    async def test() -> None:
        async with joined(parse("10mbit/200ms"), "inproc") as (listener, connection):
            await connection.send([b"lost"])
            connection.redial()
            await connection.send([b"kept"])
            assert bytes((await listener.receive()).frames[0]) == b"kept"

    run(test())


def test_close_lingers_for_what_was_sent_and_ends_waiting_readers() -> None:
    async def test() -> None:
        network = transport.create("inproc")
        listener, connection = network.listener(), ShapedConnection(network.connection(), parse("10mbit/200ms"))
        uri = await listener.bind("inproc://lingering", SERVER)
        await connection.open(uri, SERVER.public, Keys.generate())
        reading = asyncio.ensure_future(connection.receive_many())
        await connection.send([b"goodbye"])
        await connection.close(linger=2.0)
        assert bytes((await listener.receive()).frames[0]) == b"goodbye"
        assert await reading == []
        assert not await connection.send([b"more"])
        await listener.close()

    run(test())


def test_much_to_send_waits_in_line() -> None:
    """Bulk is taken at the link's rate, one message ahead: it does not pile up."""

    async def test() -> None:
        async with joined(parse("10mbit/10ms")) as (_, connection):
            began = time.monotonic()
            for _ in range(4):
                await connection.send([b"part", bytes(CHUNK)])
            assert 0.55 < time.monotonic() - began < 1.2  # the fourth begins to leave after three

    run(test())
