"""The behaviour that all transports have in common."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from barnraise import transport
from barnraise.core.errors import AddressError, UnknownNameError
from barnraise.transport import Connection, Delivery, Keys, Listener
from barnraise.transport.base import parse
from barnraise.wire.messages import CHUNK_BYTES

SERVER = Keys.generate()
PATIENCE = 60.0
URIS = {"zmq": "zmq://127.0.0.1:0", "inproc": "inproc://controller", "xmlrpc": "xmlrpc://127.0.0.1:0"}


def run(test: Coroutine[Any, Any, None]) -> None:
    async def in_time() -> None:
        await asyncio.wait_for(test, PATIENCE)

    asyncio.run(in_time())


@pytest.fixture(params=["zmq", "inproc", "xmlrpc"])
def scheme(request: pytest.FixtureRequest) -> str:
    return request.param


@asynccontextmanager
async def listening(scheme: str, uri: str = "") -> AsyncIterator[tuple[Listener, str]]:
    listener = transport.create(scheme).listener()
    try:
        yield listener, await listener.bind(uri or URIS[scheme], SERVER)
    finally:
        await listener.close()


@asynccontextmanager
async def connected(uri: str, keys: Keys | None = None, server_key: str = SERVER.public) -> AsyncIterator[Connection]:
    connection = transport.create(parse(uri).scheme).connection()
    try:
        await connection.open(uri, server_key, keys or Keys.generate())
        yield connection
    finally:
        await connection.close()


async def trouble(connection: Connection, word: str) -> str:
    """Wait until the reason why the connection is not ready has `word`, and return it."""
    text = ""
    while word not in text:
        with pytest.raises(AddressError) as caught:
            await connection.ready(0.1)
        text = str(caught.value)
    return text


def test_messages_go_both_ways_with_a_proven_key(scheme: str) -> None:
    async def test() -> None:
        keys = Keys.generate()
        async with listening(scheme) as (listener, uri), connected(uri, keys) as connection:
            assert await connection.send([b"header", memoryview(b"raw")])
            received = await listener.receive()
            assert received is not None
            assert received.peer.key == keys.public
            assert [bytes(frame) for frame in received.frames] == [b"header", b"raw"]
            assert isinstance(received.frames[0], bytes)
            assert isinstance(received.frames[1], memoryview)
            assert listener.send(received.peer, [b"answer"])
            assert await connection.receive() == [b"answer"]
            assert connection.num_connects == 1

    run(test())


def test_messages_of_one_connection_stay_in_order(scheme: str) -> None:
    async def test() -> None:
        async with listening(scheme) as (listener, uri), connected(uri) as connection:
            count = 3000

            async def send() -> None:
                for index in range(count):
                    await connection.send([b"%d" % index])

            sending = asyncio.create_task(send())
            received: list[bytes] = []
            while len(received) < count:
                received += [bytes(one.frames[0]) for one in await listener.receive_many(100)]
            assert received == [b"%d" % index for index in range(count)]
            await sending

    run(test())


def test_a_batch_is_limited(scheme: str) -> None:
    async def test() -> None:
        async with listening(scheme) as (listener, uri), connected(uri) as connection:
            for _ in range(4):
                await connection.send([b"x"])
            sizes = []
            while sum(sizes) < 4:
                sizes.append(len(await listener.receive_many(3)))
            assert max(sizes) <= 3

    run(test())


def test_a_reader_that_is_cancelled_loses_nothing(scheme: str) -> None:
    async def test() -> None:
        async with listening(scheme) as (listener, uri), connected(uri) as connection:
            await connection.ready(PATIENCE)
            for index in range(20):
                reading = asyncio.create_task(listener.receive())
                for _ in range(index):
                    await asyncio.sleep(0)
                await connection.send([b"%d" % index])
                reading.cancel()
                received = (await asyncio.gather(reading, return_exceptions=True))[0]
                if isinstance(received, asyncio.CancelledError):
                    received = await listener.receive()
                assert isinstance(received, Delivery)
                assert received.frames == [b"%d" % index]

    run(test())


def test_frames_may_change_after_they_were_sent(scheme: str) -> None:
    async def test() -> None:
        async with listening(scheme) as (listener, uri), connected(uri) as connection:
            data = bytearray(b"a" * CHUNK_BYTES)
            await connection.send([b"header", data])
            data[:] = b"b" * CHUNK_BYTES
            received = await listener.receive()
            assert received is not None
            assert bytes(received.frames[1]) == b"a" * CHUNK_BYTES

    run(test())


def test_a_connection_waits_for_its_listener_and_finds_it_again(scheme: str) -> None:
    async def test() -> None:
        async with listening(scheme) as (listener, uri), connected(uri) as connection:
            await connection.ready(PATIENCE)
            await connection.send([b"1"])
            first = await listener.receive()
            await listener.close()
            assert await listener.receive_many() == []
            assert first is not None
            assert not listener.send(first.peer, [b"late"])
            async with listening(scheme, uri) as (again, same):
                assert same == uri
                sending = asyncio.create_task(connection.send([b"2"]))
                second = await again.receive()
                assert second is not None
                assert second.peer.key == first.peer.key
                assert await sending
                again.send(second.peer, [b"welcome back"])
                assert await connection.receive() == [b"welcome back"]
                assert connection.num_connects == 2

    run(test())


def test_a_redial_gives_a_new_connection(scheme: str) -> None:
    async def test() -> None:
        async with listening(scheme) as (listener, uri), connected(uri) as connection:
            await connection.ready(PATIENCE)
            await connection.send([b"1"])
            first = await listener.receive()
            assert first is not None
            listener.send(first.peer, [b"unread"])
            assert await connection.receive() == [b"unread"]
            connection.redial()
            await connection.ready(PATIENCE)
            await connection.send([b"2"])
            second = await listener.receive()
            assert second is not None
            assert (second.frames, second.peer.key) == ([b"2"], first.peer.key)
            assert second.peer != first.peer
            assert connection.num_connects == 2

    run(test())


def test_a_revoked_key_stops_at_once(scheme: str) -> None:
    async def test() -> None:
        bad, good = Keys.generate(), Keys.generate()
        async with listening(scheme) as (listener, uri), connected(uri, bad) as evil, connected(uri, good) as honest:
            await evil.send([b"before"])
            received = await listener.receive()
            assert received is not None
            listener.revoke(bad.public)
            assert not listener.send(received.peer, [b"nothing for you"])
            await evil.send([b"after"])
            for _ in range(3):
                await honest.send([b"honest"])
                one = await listener.receive()
                assert one is not None
                assert one.peer.key == good.public
            async with connected(uri, bad) as back:
                await trouble(back, "refuses")

    run(test())


def test_the_wrong_server_key_leads_nowhere(scheme: str) -> None:
    async def test() -> None:
        async with (
            listening(scheme) as (listener, uri),
            connected(uri) as connection,
            connected(uri, server_key=Keys.generate().public) as lost,
        ):
            sending = asyncio.create_task(lost.send([b"to somebody else"]))
            await trouble(lost, "key")
            await connection.send([b"hello"])
            received = await listener.receive()
            assert received is not None
            assert received.frames == [b"hello"]
            sending.cancel()

    run(test())


def test_a_slow_reader_does_not_delay_other_peers(scheme: str) -> None:
    async def test() -> None:
        async with listening(scheme) as (listener, uri), connected(uri) as slow, connected(uri) as quick:
            peers = []
            for connection in (slow, quick):
                await connection.send([b"hello"])
                received = await listener.receive()
                assert received is not None
                peers.append(received.peer)
            chunk = bytes(CHUNK_BYTES)
            num_sent = refused = 0
            while refused < 50:  # until the network takes no more either
                if listener.send(peers[0], [b"%d" % num_sent, chunk]):
                    num_sent, refused = num_sent + 1, 0
                    assert num_sent < 1000, "bytes for a peer that does not read pile up without bound"
                else:
                    refused += 1
                    await asyncio.sleep(0.01)
            assert listener.send(peers[0], [b"word"]), "single frames still get a place in line"
            assert not listener.send(peers[0], [b"more", chunk])
            for index in range(100):
                assert listener.send(peers[1], [b"%d" % index, chunk])
                assert (await quick.receive() or [])[0] == b"%d" % index
            heads: list[bytes] = []
            while b"word" not in heads:
                heads += [bytes(message[0]) for message in await slow.receive_many()]
            assert heads == [b"%d" % index for index in range(num_sent)] + [b"word"]
            assert listener.dropped

    run(test())


def test_single_frames_for_a_slow_reader_are_bounded(scheme: str) -> None:
    async def test() -> None:
        async with listening(scheme) as (listener, uri), connected(uri) as slow:
            await slow.send([b"hello"])
            received = await listener.receive()
            assert received is not None
            word = bytes(1 << 16)
            num_sent = 0
            while listener.send(received.peer, [word]):
                num_sent += 1
                assert num_sent < 10_000
            await slow.close()

    run(test())


def test_sending_to_a_departed_peer_is_no_error(scheme: str) -> None:
    async def test() -> None:
        async with listening(scheme) as (listener, uri):
            async with connected(uri) as connection:
                await connection.send([b"hello"])
                received = await listener.receive()
            assert received is not None
            while listener.send(received.peer, [b"anybody there?"]):
                await asyncio.sleep(0)

    run(test())


def test_nothing_is_read_while_the_budget_is_spent(scheme: str) -> None:
    async def test() -> None:
        async with listening(scheme) as (listener, uri), connected(uri) as connection:
            await connection.send([b"before"])
            assert await listener.receive() is not None
            listener.budget.charge("a disk that is full", listener.budget.total)
            await connection.send([b"meanwhile"])
            reading = asyncio.create_task(listener.receive())
            await asyncio.wait([reading], timeout=0.3)
            assert not reading.done()
            listener.budget.give("a disk that is full", listener.budget.total)
            received = await reading
            assert received is not None
            assert received.frames == [b"meanwhile"]
            listener.budget.charge("a disk that is full", listener.budget.total)
            reading = asyncio.create_task(listener.receive())
            await asyncio.sleep(0)
            await listener.close()
            assert await reading is None

    run(test())


def test_queued_bytes_are_released_when_a_peer_reads_or_leaves(scheme: str) -> None:
    async def test() -> None:
        async with listening(scheme) as (listener, uri):
            for reads in (True, False):
                async with connected(uri) as connection:
                    await connection.send([b"hello"])
                    received = await listener.receive()
                    assert received is not None
                    count = 0
                    while count < 20 and listener.send(received.peer, [b"chunk", bytes(CHUNK_BYTES)]):
                        count += 1
                    assert listener.budget[received.peer.key] <= listener.budget.share
                    while reads and count:
                        count -= len(await connection.receive_many())
                    await connection.close(linger=5.0)
                while listener.budget.waiting:
                    await asyncio.sleep(0.01)

    run(test())


def test_a_closed_connection_says_so(scheme: str) -> None:
    async def test() -> None:
        async with listening(scheme) as (listener, uri), connected(uri) as connection:
            receiving = asyncio.create_task(connection.receive())
            listening_for = asyncio.create_task(listener.receive())
            await connection.ready(PATIENCE)
            await connection.close()
            assert await receiving is None
            assert not await connection.send([b"x"])
            await listener.close()
            assert await listening_for is None

    run(test())


def test_an_address_that_is_taken_is_named(scheme: str) -> None:
    async def test() -> None:
        async with listening(scheme) as (_, uri):
            with pytest.raises(AddressError, match=r"taken.*(another|choose)"):
                async with listening(scheme, uri):
                    pass

    run(test())


def test_a_missing_listener_is_an_error_after_the_timeout(scheme: str) -> None:
    async def test() -> None:
        async with listening(scheme) as (_, uri):
            pass
        async with connected(uri) as connection:
            with pytest.raises(AddressError, match=r"no connection after 0\.2 s: "):
                await connection.ready(0.2)

    run(test())


@pytest.mark.parametrize("uri", ["", "zmq", "zmq://", "zmq://h", "zmq://h:x", "zmq://h:70000", "//h:1", "zmq://[::1:5"])
def test_an_address_that_is_none_is_refused(uri: str) -> None:
    with pytest.raises(AddressError, match="scheme://host:port"):
        parse(uri)


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'zmq'"):
        transport.create("zqm")


def test_the_package_does_not_import_zmq_before_it_is_needed() -> None:
    code = "import sys, barnraise.transport as t; t.CATALOG.names(); sys.exit('zmq' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
