"""A connection that goes elsewhere once its place is gone, over real sockets."""

from __future__ import annotations

import asyncio
from typing import Any

from barnraise.transport import Keys, create
from barnraise.transport.base import Listener
from barnraise.transport.roaming import MOST_EVER, MOST_PLACES, RoamingConnection


def within(seconds: float, work: Any) -> None:
    async def limited() -> None:
        async with asyncio.timeout(seconds):
            await work

    asyncio.run(limited())


async def listener(keys: Keys) -> tuple[Listener, str]:
    made = create("zmq").listener()
    return made, await made.bind("zmq://127.0.0.1:0", keys)


async def heard(listening: Listener, connection: RoamingConnection, text: bytes) -> None:
    """`text` arrives there, said again until it does."""
    receiving = asyncio.ensure_future(listening.receive())
    while not receiving.done():
        sending = asyncio.ensure_future(connection.send([text]))
        await asyncio.wait([receiving, sending], timeout=0.1, return_when=asyncio.FIRST_COMPLETED)
        sending.cancel()
    delivery = receiving.result()
    assert delivery is not None
    assert bytes(delivery.frames[0]) == text


async def connected(keys: Keys) -> tuple[Listener, str, RoamingConnection]:
    """A place, its address, and a connection that has been heard there."""
    first, uri = await listener(keys)
    connection = RoamingConnection()
    await connection.open(uri, keys.public, Keys.generate())
    await heard(first, connection, b"here")
    return first, uri, connection


def test_a_lost_place_is_left_for_another_and_that_for_the_next() -> None:
    async def play() -> None:
        keys = Keys.generate()
        first, _, connection = await connected(keys)
        for number in range(3):
            other, elsewhere = await listener(keys)
            connection.also([elsewhere])
            await first.close()
            await heard(other, connection, b"there %d" % number)
            first = other
        await connection.close()
        await first.close()

    within(60, play())


def test_without_another_place_it_waits_where_it_is() -> None:
    async def play() -> None:
        keys = Keys.generate()
        first, uri, connection = await connected(keys)
        await first.close()
        again = create("zmq").listener()
        await again.bind(uri, keys)
        await heard(again, connection, b"again")
        await connection.close()
        await again.close()

    within(60, play())


def test_invalid_addresses_are_skipped_and_the_latest_addresses_count() -> None:
    async def play() -> None:
        keys = Keys.generate()
        first, uri = await listener(keys)
        connection = RoamingConnection()
        await connection.open(uri, keys.public, keys)
        connection.also(["", "nonsense", "ftp://127.0.0.1:1", "zmq://127.0.0.1:1 evil"])
        assert connection._places == [uri]
        connection.also(["zmq://127.0.0.1:1", uri, "zmq://127.0.0.1:1"])
        connection.also(f"zmq://127.0.0.1:{port}" for port in range(2, 3 * MOST_PLACES))
        assert connection._places[:2] == [uri, "zmq://127.0.0.1:2"]
        assert len(connection._places) == MOST_PLACES
        await connection.close()
        await first.close()

    within(60, play())


def test_places_that_a_controller_may_not_name_are_forgotten() -> None:
    """A controller on the internet cannot make a worker dial a service of the worker's own machine."""

    async def play() -> None:
        said = list[str]()
        connection = RoamingConnection(said.append)
        await connection.open("zmq://192.0.2.1:7000 xmlrpc://8.8.8.8:7001", Keys.generate().public, Keys.generate())
        connection.also(["zmq://127.0.0.1:6379"])
        assert not await connection._may_dial("zmq://127.0.0.1:6379")
        assert connection._places == ["zmq://192.0.2.1:7000 xmlrpc://8.8.8.8:7001"]
        assert said == [
            "the run is said to continue at zmq://127.0.0.1:6379, which a controller at zmq://192.0.2.1:7000 "
            "xmlrpc://8.8.8.8:7001 may not name"
        ]
        await connection.close()

    within(60, play())


def test_no_controller_sends_its_workers_to_ever_other_places() -> None:
    async def play() -> None:
        connection = RoamingConnection()
        await connection.open("zmq://127.0.0.1:1", Keys.generate().public, Keys.generate())
        for port in range(2, 3 * MOST_EVER):
            uri = f"zmq://127.0.0.1:{port}"
            connection.also([uri])
            if uri in connection._places:
                assert await connection._may_dial(uri)
        assert len(connection._dialled) == MOST_EVER
        connection.also(["zmq://127.0.0.1:2"])
        assert "zmq://127.0.0.1:2" in connection._places
        await connection.close()

    within(60, play())
