"""One controller on two transports, and a worker that takes the second when the first does not answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from barnraise.core.errors import AddressError
from barnraise.transport import Keys, Listener, fallback
from barnraise.transport.base import parse
from barnraise.transport.fallback import connection_for
from barnraise.transport.several import listener_for

SERVER = Keys.generate()
PATIENCE = 60.0
BOTH = "zmq://127.0.0.1:0 xmlrpc://127.0.0.1:0"


def run(test: Coroutine[Any, Any, None]) -> None:
    async def in_time() -> None:
        await asyncio.wait_for(test, PATIENCE)

    asyncio.run(in_time())


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fallback, "PATIENCE", 0.5)
    monkeypatch.setattr(fallback, "LOST_PATIENCE", 1.0)


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@asynccontextmanager
async def listening(uri: str = BOTH) -> AsyncIterator[tuple[Listener, str]]:
    listener = listener_for(uri)
    try:
        yield listener, await listener.bind(uri, SERVER)
    finally:
        await listener.close()


@asynccontextmanager
async def connected(uri: str, keys: Keys | None = None, said: list[str] | None = None) -> AsyncIterator[Any]:
    connection = connection_for(uri, (said if said is not None else []).append)
    try:
        await connection.open(uri, SERVER.public, keys or Keys.generate())
        yield connection
    finally:
        await connection.close()


def test_both_ways_lead_to_one_listener() -> None:
    async def test() -> None:
        async with listening() as (listener, uri):
            zmq, http = uri.split()
            assert [parse(one).scheme for one in (zmq, http)] == ["zmq", "xmlrpc"]
            keys = Keys.generate()
            async with connected(zmq, keys) as one, connected(http, keys) as two:
                peers = []
                for connection in (one, two):
                    await connection.send([b"header", b"raw"])
                    received = await listener.receive()
                    assert received is not None
                    assert received.peer.key == keys.public
                    peers.append(received.peer)
                assert peers[0] != peers[1]
                for connection, peer in zip((one, two), peers, strict=True):
                    assert listener.send(peer, [b"answer"])
                    assert await connection.receive() == [b"answer"]
                listener.revoke(keys.public)
                assert not any(listener.send(peer, [b"answer"]) for peer in peers)

    run(test())


def test_a_reader_that_is_cancelled_loses_nothing_and_batches_are_limited() -> None:
    async def test() -> None:
        async with listening() as (listener, uri), connected(uri.split()[0]) as one, connected(uri.split()[1]) as two:
            expected = []
            for index in range(20):
                reading = asyncio.create_task(listener.receive_many(3))
                for _ in range(index):
                    await asyncio.sleep(0)
                await (one if index % 2 else two).send([b"%d" % index])
                reading.cancel()
                batch = (await asyncio.gather(reading, return_exceptions=True))[0]
                if isinstance(batch, BaseException):
                    batch = await listener.receive_many(3)
                assert len(batch) <= 3
                expected += [bytes(received.frames[0]) for received in batch]
            while len(expected) < 20:
                expected += [bytes(received.frames[0]) for received in await listener.receive_many(3)]
            assert sorted(map(int, expected)) == list(range(20))

    run(test())


def test_all_ports_or_none() -> None:
    async def test() -> None:
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen(1)
            taken = other.getsockname()[1]
            with pytest.raises(AddressError, match=r"taken.*controller\.http_port"):
                async with listening(f"zmq://127.0.0.1:0 xmlrpc://127.0.0.1:{taken}"):
                    pass

    run(test())


def test_a_closed_listener_says_so() -> None:
    async def test() -> None:
        async with listening() as (listener, _):
            reading = asyncio.create_task(listener.receive())
            await asyncio.sleep(0)
            await listener.close()
            assert await reading is None

    run(test())


def test_the_second_way_is_taken_when_the_first_does_not_answer(closed_port: int) -> None:
    async def test() -> None:
        async with listening() as (listener, uri):
            http, said = uri.split()[1], []
            async with connected(f"zmq://127.0.0.1:{closed_port} {http}", said=said) as connection:
                sending = asyncio.create_task(connection.send([b"hello"]))
                await connection.ready(PATIENCE)
                received = await listener.receive()
                assert await sending
                assert received is not None
                listener.send(received.peer, [b"answer"])
                assert await connection.receive() == [b"answer"]
                assert connection.num_connects == 1
            port = parse(http).port
            assert said == [
                f"ZMQ at 127.0.0.1:{closed_port} does not answer (nothing answers at 127.0.0.1, port {closed_port}); "
                f"using HTTP at 127.0.0.1:{port}"
            ]

    run(test())


def test_the_first_way_is_tried_again_after_a_loss(closed_port: int) -> None:
    async def test() -> None:
        zmq, said = f"zmq://127.0.0.1:{closed_port}", []
        async with listening("xmlrpc://127.0.0.1:0") as (listener, http), connected(f"{zmq} {http}", said=said) as one:
            await one.ready(PATIENCE)
            assert len(said) == 1
            await listener.close()

            async def call() -> None:
                while await one.send([b"back"]):  # frames on their way may be lost with a connection
                    await asyncio.sleep(0.1)

            async with listening(zmq) as (again, _):
                calling = asyncio.create_task(call())
                received = await again.receive()
                assert received is not None
                assert received.frames == [b"back"]
                assert len(said) == 1
                calling.cancel()

    run(test())


def test_an_error_without_any_listener_names_both_transports(closed_port: int) -> None:
    async def test() -> None:
        async with connected(f"zmq://127.0.0.1:{closed_port} xmlrpc://127.0.0.1:{closed_port}") as connection:
            with pytest.raises(AddressError, match=r"ZMQ: nothing answers.*HTTP: nothing answers .*connection refused"):
                await connection.ready(2.0)

    run(test())


def test_closing_ends_everything(closed_port: int) -> None:
    async def test() -> None:
        connection = connection_for("zmq://127.0.0.1:1 xmlrpc://127.0.0.1:1")
        await connection.open("zmq://127.0.0.1:1 xmlrpc://127.0.0.1:1", SERVER.public, Keys.generate())
        waiting = asyncio.gather(connection.receive(), connection.send([b"x"]))
        await asyncio.sleep(0)
        await connection.close()
        assert await waiting == [None, False]

    run(test())
