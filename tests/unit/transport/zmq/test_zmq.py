"""The ZMQ transport withstands each trap of the protocol, and peers that do not follow it, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.asyncio

from barnraise import transport
from barnraise.core.errors import AddressError, WireError
from barnraise.transport import Connection, Delivery, Keys, Listener
from barnraise.transport.base import parse
from barnraise.transport.zmq import connection as zmq_connection
from barnraise.transport.zmq import connections as zmq_door
from barnraise.transport.zmq import loop_socket
from barnraise.transport.zmq import outgoing as zmq_outgoing
from barnraise.transport.zmq.connection import ZmqConnection
from barnraise.transport.zmq.listener import ZmqListener
from barnraise.transport.zmq.loop_socket import LoopSocket
from barnraise.transport.zmq.options import DEALER_QUEUE
from barnraise.wire import decode_from_worker
from barnraise.wire.messages import CHUNK_BYTES, FRAME_LIMIT

SERVER = Keys.generate()
PATIENCE = 60.0
NETWORK = transport.create("zmq")


def run(test: Coroutine[Any, Any, None]) -> None:
    async def in_time() -> None:
        await asyncio.wait_for(test, PATIENCE)

    asyncio.run(in_time())


@asynccontextmanager
async def listening(uri: str = "zmq://127.0.0.1:0") -> AsyncIterator[tuple[Listener, str]]:
    listener = NETWORK.listener()
    try:
        yield listener, await listener.bind(uri, SERVER)
    finally:
        await listener.close()


@asynccontextmanager
async def connected(uri: str, keys: Keys | None = None) -> AsyncIterator[Connection]:
    connection = NETWORK.connection()
    try:
        await connection.open(uri, SERVER.public, keys or Keys.generate())
        yield connection
    finally:
        await connection.close()


FAILURES = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_DISCONNECTED


@asynccontextmanager
async def foreign(
    uri: str,
    server_key: str = SERVER.public,
    route: bytes = b"",
    keys: Keys | None = None,
    receive_buffer: int = 0,
) -> AsyncIterator[tuple[zmq.asyncio.Socket, zmq.asyncio.Socket]]:
    """Make a client without barnraise, and a socket that has a message whenever its connection fails."""
    context = zmq.asyncio.Context()
    client = context.socket(zmq.DEALER)
    failures = client.get_monitor_socket(FAILURES)
    if server_key:
        keys = keys or Keys.generate()
        client.curve_publickey, client.curve_secretkey = keys.public.encode(), keys.secret.encode()
        client.curve_serverkey = server_key.encode()
    if route:
        client.setsockopt(zmq.ROUTING_ID, route)
    if receive_buffer:  # it reads next to nothing
        client.setsockopt(zmq.RCVBUF, receive_buffer)
        client.setsockopt(zmq.RCVHWM, 1)
    try:
        client.connect(f"tcp://127.0.0.1:{parse(uri).port}")
        yield client, failures
    finally:
        context.destroy(linger=0)


async def exchange(listener: Listener, connection: Connection, word: bytes) -> Delivery:
    """A message and its answer; whatever else arrives meanwhile fails the test."""
    await connection.send([word])
    received = await listener.receive()
    assert received is not None
    assert received.frames == [word]
    assert listener.send(received.peer, [word[::-1]])
    assert await connection.receive() == [word[::-1]]
    return received


async def dropped(listener: Listener, connection: Connection) -> dict[str, int]:
    """Wait until the listener has dropped messages, and return their counts; good messages still pass."""
    while not listener.dropped:
        await exchange(listener, connection, b"meanwhile")
    return listener.dropped


async def trouble(connection: Connection, word: str) -> None:
    """Wait until what keeps the connection from being ready is about `word`."""
    text = ""
    while word not in text:
        with pytest.raises(AddressError) as caught:
            await connection.ready(0.05)
        text = str(caught.value)


# Admission


@pytest.mark.parametrize("server_key", ["", Keys.generate().public], ids=["no CURVE", "another key"])
def test_without_the_servers_key_nothing_gets_through(server_key: str) -> None:
    async def test() -> None:
        async with (
            listening() as (listener, uri),
            connected(uri) as connection,
            foreign(uri, server_key) as (stranger, failures),
        ):
            for _ in range(10):
                await stranger.send_multipart([b"let me in"])
            await failures.recv_multipart()
            for _ in range(10):
                await exchange(listener, connection, b"honest")
            assert listener.dropped == {}

    run(test())


def test_a_routing_id_of_the_clients_choice_is_refused() -> None:
    async def test() -> None:
        async with (
            listening() as (listener, uri),
            connected(uri) as connection,
            foreign(uri, route=b"me") as (other, _),
        ):
            await other.send_multipart([b"hello"])
            (reason,) = await dropped(listener, connection)
            assert "routing id" in reason

    run(test())


def test_a_key_that_is_no_longer_revoked_gets_in_again() -> None:
    """libzmq gives up permanently after a refusal: the connection has to dial again by itself."""

    async def test() -> None:
        keys = Keys.generate()
        async with listening() as (listener, uri):
            listener.revoke(keys.public)
            async with connected(uri, keys) as connection:
                await trouble(connection, "revoked")
                listener.revoked.discard(keys.public)
                await connection.ready(PATIENCE)
                await exchange(listener, connection, b"hello")

    run(test())


# Peers that do not follow the protocol


def test_a_message_without_end_costs_its_sender_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zmq_door, "UNPROVEN_BYTES", 4 * FRAME_LIMIT)
    monkeypatch.setattr(zmq_door, "UNREAD_BYTES", 4 * FRAME_LIMIT)
    monkeypatch.setattr(zmq_door, "LOOK_SECONDS", 0.005)

    async def test() -> None:
        async with listening() as (listener, uri), connected(uri) as connection:
            await exchange(listener, connection, b"before")
            for hello in (False, True):
                async with foreign(uri) as (other, failures):
                    if hello:
                        await other.send(b"hello")
                        assert await listener.receive() is not None
                    await other.send_multipart([bytes(FRAME_LIMIT)] * 200)
                    await failures.recv_multipart()
            for _ in range(10):
                await exchange(listener, connection, b"honest")
            assert connection.num_connects == 1

    run(test())


def test_a_stranger_that_sends_much_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zmq_door, "LOOK_SECONDS", 0.005)

    async def test() -> None:
        member, listener = Keys.generate(), NETWORK.listener()
        listener.members = {member.public}
        try:
            uri = await listener.bind("zmq://127.0.0.1:0", SERVER)
            async with connected(uri, member) as connection, foreign(uri) as (stranger, failures):
                hung_up = asyncio.ensure_future(failures.recv_multipart())
                while not hung_up.done():
                    await stranger.send(bytes(4096))
                    reading = asyncio.ensure_future(listener.receive())
                    await asyncio.wait({reading, hung_up}, return_when=asyncio.FIRST_COMPLETED)
                    reading.cancel()
                for index in range(100):
                    await connection.send([b"%d" % index, bytes(4096)])
                    received = await listener.receive()
                    while received is not None and received.peer.key != member.public:
                        received = await listener.receive()
                    assert received is not None
                    assert received.frames[0] == b"%d" % index
                assert connection.num_connects == 1
        finally:
            await listener.close()

    run(test())


def test_a_key_has_few_connections_and_one_share_of_unread_answers() -> None:
    async def test() -> None:
        keys = Keys.generate()
        async with listening() as (listener, uri), AsyncExitStack() as stack:
            assert isinstance(listener, ZmqListener)
            for _ in range(6):
                greedy = await stack.enter_async_context(foreign(uri, keys=keys, receive_buffer=4096))
                await greedy[0].send(b"40 of your largest, please")
                received = await listener.receive()
                assert received is not None
                for _ in range(40):
                    listener.send(received.peer, [b"chunk", bytes(FRAME_LIMIT)])
                assert listener.budget[keys.public] <= listener.budget.share
            assert listener._door is not None
            while len(listener._door) > zmq_door.CONNECTIONS_A_KEY:
                await asyncio.sleep(0.01)
            await stack.aclose()
            while listener.budget.waiting:
                await asyncio.sleep(0.01)

    run(test())


def test_a_peer_that_takes_nothing_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zmq_outgoing, "STALLED_SECONDS", 0.5)

    async def test() -> None:
        async with listening() as (listener, uri), foreign(uri, receive_buffer=4096) as (other, _):
            await other.send(b"hello")
            received = await listener.receive()
            assert received is not None
            while listener.send(received.peer, [b"chunk", bytes(FRAME_LIMIT)]):
                pass
            while listener.budget.waiting:
                await asyncio.sleep(0.01)
            assert not listener.send(received.peer, [b"gone"])

    run(test())


def test_connections_that_end_are_forgotten() -> None:
    async def test() -> None:
        async with listening() as (listener, uri):
            assert isinstance(listener, ZmqListener)
            assert listener._door is not None
            for _ in range(300):
                _, writer = await asyncio.open_connection("127.0.0.1", parse(uri).port)
                writer.close()
            async with connected(uri) as connection:
                await exchange(listener, connection, b"honest")
                while len(listener._door) > 1:
                    await asyncio.sleep(0.01)
            while len(listener._door) or len(listener._door.door):
                await asyncio.sleep(0.01)

    run(test())


def test_an_oversize_frame_closes_only_its_senders_connection() -> None:
    async def test() -> None:
        async with listening() as (listener, uri), connected(uri) as connection:
            await exchange(listener, connection, b"before")
            async with foreign(uri) as (other, failures):
                await other.send_multipart([b"small", bytes(FRAME_LIMIT + 100_000)])
                await failures.recv_multipart()
                for _ in range(10):
                    await exchange(listener, connection, b"honest")
            assert connection.num_connects == 1

    run(test())


def test_the_largest_frame_fits() -> None:
    async def test() -> None:
        async with listening() as (listener, uri), connected(uri) as connection:
            data = random.Random(0).randbytes(FRAME_LIMIT)
            await connection.send([b"header", data])
            received = await listener.receive()
            assert received is not None
            assert bytes(received.frames[1]) == data
            assert listener.send(received.peer, [data, data])
            answer = await connection.receive()
            assert answer is not None
            assert [bytes(frame) for frame in answer] == [data, data]

    run(test())


@pytest.mark.parametrize("frames_a_call", [4096, 20])
def test_too_many_frames_reach_the_decoder_as_too_many(monkeypatch: pytest.MonkeyPatch, frames_a_call: int) -> None:
    monkeypatch.setattr(loop_socket, "FRAMES_A_CALL", frames_a_call)

    async def test() -> None:
        async with listening() as (listener, uri), foreign(uri) as (other, _):
            await other.send_multipart([b"x"] * 1000)
            await other.send_multipart([b"next"])
            received = await listener.receive()
            assert received is not None
            assert len(received.frames) == 3
            with pytest.raises(WireError, match="3 frames"):
                decode_from_worker(received.frames)
            following = await listener.receive()
            assert following is not None
            assert following.frames == [b"next"]

    run(test())


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + b"x" * 100,
        bytes(100),
        b"\xff" * 100,
        b"\xff"
        + bytes(8)
        + b"\x7f\x03\x00CURVE"
        + bytes(15)
        + b"\x00"
        + bytes(31)
        + b"\x06"
        + b"\xff" * 8
        + b"x" * 999,
        random.Random(1).randbytes(5000),
    ],
)
def test_garbage_on_the_port_is_hung_up_on(garbage: bytes) -> None:
    async def test() -> None:
        async with listening() as (listener, uri), connected(uri) as connection:
            for _ in range(5):
                reader, writer = await asyncio.open_connection("127.0.0.1", parse(uri).port)
                with contextlib.suppress(ConnectionError):
                    writer.write(garbage)
                    while await reader.read(1000):
                        pass
                writer.close()
                await exchange(listener, connection, b"honest")
            assert listener.dropped == {}
            assert connection.num_connects == 1

    run(test())


def test_another_program_on_the_port_is_named_and_outlived() -> None:
    """libzmq gives up permanently on a peer of another protocol: the connection has to dial again by itself."""

    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"x" * 100)
        writer.close()

    async def test() -> None:
        other = await asyncio.start_server(refuse, "127.0.0.1", 0)
        port = other.sockets[0].getsockname()[1]
        async with connected(f"zmq://127.0.0.1:{port}") as connection:
            await trouble(connection, "not a barnraise controller")
            other.close()
            await other.wait_closed()
            async with listening(f"zmq://127.0.0.1:{port}") as (listener, _):
                await exchange(listener, connection, b"at last")

    run(test())


# Many, and for long


def test_sixty_four_connections() -> None:
    async def test() -> None:
        async with contextlib.AsyncExitStack() as stack:
            listener, uri = await stack.enter_async_context(listening())
            keys = [Keys.generate() for _ in range(64)]
            connections = [await stack.enter_async_context(connected(uri, key)) for key in keys]
            data = bytes(CHUNK_BYTES)

            async def talk(connection: Connection, name: bytes) -> None:
                for index in range(5):
                    await connection.send([name + b" %d" % index, data])
                    assert await connection.receive() == [name + b" %d heard" % index]

            talks = [
                asyncio.create_task(talk(one, key.public.encode())) for one, key in zip(connections, keys, strict=True)
            ]
            num_heard = 0
            while num_heard < 64 * 5:
                for received in await listener.receive_many():
                    assert bytes(received.frames[0]).split()[0] == received.peer.key.encode()
                    assert listener.send(received.peer, [bytes(received.frames[0]) + b" heard"])
                    num_heard += 1
            await asyncio.gather(*talks)

    run(test())


def test_words_overtake_chunks_that_wait_for_room() -> None:
    async def test() -> None:
        async with listening() as (_, uri):
            pass
        async with connected(uri) as connection:
            chunks = [asyncio.create_task(connection.send([b"%d" % index, b"chunk"])) for index in range(20)]
            await asyncio.sleep(0)
            word = asyncio.create_task(connection.send([b"word"]))
            async with listening(uri) as (listener, _):
                heads: list[bytes] = []
                while len(heads) < 21:
                    heads += [bytes(received.frames[0]) for received in await listener.receive_many()]
                assert heads.index(b"word") == DEALER_QUEUE
                heads.remove(b"word")
                assert heads == [b"%d" % index for index in range(20)]
            assert all(await asyncio.gather(word, *chunks))

    run(test())


def test_no_wake_up_is_lost_when_both_ways_are_full() -> None:
    """Each round ends only when all has arrived, and nothing else happens then: one lost wake-up is a standstill."""

    async def test() -> None:
        rng, upload, download = random.Random(0), 8, 12
        async with listening() as (listener, uri), connected(uri) as connection:

            async def serve() -> None:
                while (received := await listener.receive()) is not None:
                    if received.frames[0] == b"ask":
                        for _ in range(download):
                            assert listener.send(received.peer, [b"chunk", bytes(rng.choice((10, 100_000)))])
                    else:
                        listener.send(received.peer, [b"ack"])

            async def send() -> None:
                await connection.send([b"ask"])
                for _ in range(upload):
                    await connection.send([b"part", bytes(rng.choice((10, 300_000)))])

            serving = asyncio.ensure_future(serve())
            for _ in range(300):
                sending = asyncio.ensure_future(send())
                arrived = 0
                while arrived < upload + download:
                    arrived += len(await connection.receive_many())
                    if rng.random() < 0.2:
                        await asyncio.sleep(0.001)
                await sending
            serving.cancel()

    run(test())


@pytest.mark.parametrize("waiting", ["writer", "reader"])
def test_a_call_does_not_swallow_the_wake_up_of_another(waiting: str) -> None:
    """An event that happens while the loop is busy is seen first by another call than the waiting one."""

    async def test() -> None:
        context = zmq.Context()
        near, far = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
        near.set(zmq.SNDHWM, 1)
        far.set(zmq.RCVHWM, 1)
        near.connect(f"tcp://127.0.0.1:{far.bind_to_random_port('tcp://127.0.0.1')}")
        socket = LoopSocket(near)
        try:
            filler, refused = [bytes(1 << 20)], 0
            while refused < 20:
                refused = 0 if socket.try_send(filler) else refused + 1
                await asyncio.sleep(0.02 if refused else 0.0)
            waits = socket.wait_writable() if waiting == "writer" else socket.wait_readable()
            waiter = asyncio.ensure_future(waits)
            await asyncio.sleep(0.05)
            assert not waiter.done()
            if waiting == "writer":
                while far.poll(200):
                    far.recv()
                assert socket.try_receive(1) is None
            else:
                far.send(b"word")
                time.sleep(0.2)  # the loop must not look by itself
                assert not socket.try_send(filler)
            await asyncio.wait_for(waiter, 5.0)
        finally:
            socket.close()
            context.destroy(linger=0)

    run(test())


def resources() -> tuple[int, int]:
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts threads and files as Linux shows them")
def test_an_open_connection_without_answers_is_redialled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection dials again when libzmq waits without end for a frame, as after spoiled bytes.

    A connection on which no question waits is left alone, and the next patience is twice as long.
    """
    monkeypatch.setattr(zmq_connection, "FIRST_SILENCE", 0.2)
    monkeypatch.setattr(zmq_connection, "LOOK_SECONDS", 0.02)

    async def test() -> None:
        async with listening() as (listener, uri), connected(uri) as asks, connected(uri) as waits:
            assert isinstance(asks, ZmqConnection)
            await asks.send([b"one"])
            await waits.ready(timeout=10.0)
            while asks.num_connects < 2:
                await asyncio.sleep(0.01)
            assert asks._silence == 0.4
            assert waits.num_connects == 1
            await asks.send([b"two"])
            first, second = [await listener.receive() for _ in range(2)]
            assert first is not None
            assert second is not None
            assert (bytes(first[1][0]), bytes(second[1][0])) == (b"one", b"two")
            assert listener.send(second[0], [b"answer"])
            assert await asks.receive() == [b"answer"]

    run(test())


def test_nothing_is_left_after_closing() -> None:
    async def round_trip() -> None:
        async with listening() as (listener, uri), connected(uri) as connection:
            await exchange(listener, connection, b"hello")
            connection.redial()
            await exchange(listener, connection, b"again")
        with pytest.raises(AddressError):
            async with listening() as (_, uri), listening(uri):
                pass

    run(round_trip())
    before = resources()
    for _ in range(5):
        run(round_trip())
    for _ in range(10_000):  # a thread that was joined is listed a moment longer
        threads, files = resources()
        if threads <= before[0] and files <= before[1]:
            return
    pytest.fail(f"{(threads, files)} threads and files, but {before} before")


def test_a_close_that_is_cancelled_leaves_no_context_to_the_garbage_collector() -> None:
    async def exchange() -> None:
        async with listening() as (_, uri):
            connections = [NETWORK.connection() for _ in range(40)]  # more than there are threads to end them
            for connection in connections:
                await connection.open(uri, SERVER.public, Keys.generate())
            closing = [asyncio.ensure_future(connection.close()) for connection in connections]
            await asyncio.sleep(0)
            for task in closing:
                task.cancel()
            await asyncio.gather(*closing, return_exceptions=True)
            contexts = [connection._context for connection in connections]  # type: ignore[attr-defined]
            async with asyncio.timeout(10.0):
                while not all(context.closed for context in contexts):
                    await asyncio.sleep(0.01)

    run(exchange())


def test_ipv6() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")

    async def test() -> None:
        async with listening("zmq://[::1]:0") as (listener, uri), connected(uri) as connection:
            assert uri.startswith("zmq://[::1]:")
            await exchange(listener, connection, b"hello")

    run(test())


def test_a_name_is_bound_and_dialled_by_its_address() -> None:
    async def test() -> None:
        async with listening("zmq://localhost:0") as (listener, uri), connected(uri) as connection:
            assert uri.startswith("zmq://localhost:")
            await exchange(listener, connection, b"hello")

    run(test())


@pytest.mark.parametrize(
    ("uri", "remedy"),
    [
        ("zmq://192.0.2.1:0", "not an address of this machine: set controller.host"),
        ("zmq://no-such-host.invalid:0", "host name 'no-such-host.invalid' has no address"),
    ],
)
def test_an_address_that_cannot_be_bound_is_named(uri: str, remedy: str) -> None:
    async def test() -> None:
        with pytest.raises(AddressError, match=remedy):
            async with listening(uri):
                pass

    run(test())


def test_a_taken_port_is_named_with_a_remedy() -> None:
    async def test() -> None:
        async with listening() as (_, uri):
            with pytest.raises(
                AddressError, match=f"port {parse(uri).port} on 127.0.0.1 is taken.*ss -ltnp.*controller.port"
            ):
                async with listening(uri):
                    pass

    run(test())


def test_a_name_without_address_is_the_reason_given() -> None:
    async def test() -> None:
        async with connected("zmq://no-such-host.invalid:1") as connection:
            with pytest.raises(AddressError, match=r"host name 'no-such-host\.invalid' has no address"):
                await connection.ready(0.1)

    run(test())
