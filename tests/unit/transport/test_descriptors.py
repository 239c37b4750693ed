"""A controller with few descriptors gets thousands of connections: honest work and its files continue."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from barnraise import transport
from barnraise.transport import Keys
from barnraise.transport.base import parse
from barnraise.transport.descriptors import raise_limit
from barnraise.transport.fallback import connection_for

SERVER = Keys.generate()
STRANGERS = 1500

CONTROLLER = """
import asyncio, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 420))
from barnraise.transport import Keys
from barnraise.transport.several import listener_for

async def serve():
    uri = "zmq://127.0.0.1:0 xmlrpc://127.0.0.1:0"
    listener = listener_for(uri)
    listener.members = set(sys.argv[3:])
    print(await listener.bind(uri, Keys(*sys.argv[1:3])), flush=True)
    while batch := await listener.receive_many():
        for peer, frames in batch:
            with open("/dev/null", "rb"):
                listener.send(peer, [frames[0][::-1]])

asyncio.run(serve())
"""


@contextlib.contextmanager
def controller(*members: Keys) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    keys = [SERVER.public, SERVER.secret, *(member.public for member in members)]
    process = subprocess.Popen([sys.executable, "-c", CONTROLLER, *keys], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("scheme", ["zmq", "xmlrpc"])
def test_an_honest_worker_continues_and_another_connects(scheme: str) -> None:
    assert raise_limit() > 2 * STRANGERS

    async def exchange(connection: transport.Connection, word: bytes) -> None:
        await connection.send([word])
        assert await connection.receive() == [word[::-1]]

    async def test(uri: str, member: Keys) -> None:
        address = next(one for one in uri.split() if parse(one).scheme == scheme)
        async with contextlib.AsyncExitStack() as stack:

            async def connected(keys: Keys) -> transport.Connection:
                connection = connection_for(address)
                stack.push_async_callback(connection.close)
                await connection.open(address, SERVER.public, keys)
                return connection

            honest = await connected(member)
            await exchange(honest, b"before")
            for index in range(STRANGERS):
                one = stack.enter_context(socket.socket())
                one.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    one.connect(("127.0.0.1", parse(address).port))
                if index % 10 == 0:
                    await exchange(honest, b"%d" % index)
            assert honest.num_connects == 1
            newcomer = await connected(Keys.generate())
            await exchange(newcomer, b"let me in")
            await exchange(honest, b"after")

    member = Keys.generate()
    with controller(member) as (uri, process):
        asyncio.run(asyncio.wait_for(test(uri, member), 60.0))
        assert process.poll() is None
