"""Routing ids, which clients may choose: none brings a client what is another's, and none ends the controller."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import zmq
import zmq.asyncio

from barnraise.transport import Delivery, Keys
from barnraise.transport.base import parse
from barnraise.transport.zmq.listener import ZmqListener

SERVER = Keys.generate()

FIRST_ROUTE = """
import asyncio
from barnraise import transport
from barnraise.transport import Keys

async def show():
    network, server = transport.create("zmq"), Keys.generate()
    listener, connection = network.listener(), network.connection()
    uri = await listener.bind("zmq://127.0.0.1:0", server)
    await connection.open(uri, server.public, Keys.generate())
    await connection.send([b"hello"])
    print((await listener.receive()).peer.route.hex())
    await connection.close()
    await listener.close()

asyncio.run(show())
"""


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 60.0))


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[ZmqListener, str]]:
    listener = ZmqListener(1)
    try:
        yield listener, await listener.bind("zmq://127.0.0.1:0", SERVER)
    finally:
        await listener.close()


@asynccontextmanager
async def client(uri: str, route: bytes = b"") -> AsyncIterator[zmq.asyncio.Socket]:
    """Make a client without barnraise, with a key of its own."""
    context, keys = zmq.asyncio.Context(), Keys.generate()
    socket = context.socket(zmq.DEALER)
    socket.curve_publickey, socket.curve_secretkey = keys.public.encode(), keys.secret.encode()
    socket.curve_serverkey = SERVER.public.encode()
    if route:
        socket.setsockopt(zmq.ROUTING_ID, route)
    try:
        socket.connect(f"tcp://127.0.0.1:{parse(uri).port}")
        yield socket
    finally:
        context.destroy(linger=0)


async def greeted(listener: ZmqListener, socket: zmq.asyncio.Socket) -> Delivery:
    await socket.send(b"hello")
    received = await listener.receive()
    assert received is not None
    return received


async def forgotten(listener: ZmqListener) -> None:
    assert listener._door is not None
    while len(listener._door):
        await asyncio.sleep(0.01)


def test_a_peer_that_takes_anothers_route_does_not_get_its_messages() -> None:
    async def test() -> None:
        async with listening() as (listener, uri):
            async with client(uri) as honest:
                peer = (await greeted(listener, honest)).peer
            await forgotten(listener)
            async with client(uri, peer.route) as thief:
                assert (await greeted(listener, thief)).peer.route == peer.route
                assert not listener.send(peer, [b"for the honest one"])
                assert not listener.send(peer, [b"for the honest one", b"bytes"])
                other = (await greeted(listener, thief)).peer
                assert listener.send(other, [b"for the thief"])
                assert await thief.recv() == b"for the thief"

    run(test())


def test_a_peer_with_an_invalid_routing_id_is_disconnected() -> None:
    async def test() -> None:
        async with listening() as (listener, uri), client(uri, b"me") as other:
            ended = other.get_monitor_socket(zmq.EVENT_DISCONNECTED)
            await other.send(b"hello")
            reading = asyncio.ensure_future(listener.receive())
            await ended.recv_multipart()
            reading.cancel()
            (reason,) = listener.dropped
            assert "routing id" in reason

    run(test())


def test_the_first_route_is_unpredictable() -> None:
    """libzmq aborts the process when a client has chosen it: by itself it is the same wherever it runs."""
    command = [sys.executable, "-c", FIRST_ROUTE]
    routes = {subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)}
    assert len(routes) == 2
