"""The HTTP transport withstands other clients, strangers, replays and proxies, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import tracemalloc
import xmlrpc.client
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnraise import transport
from barnraise.core.errors import AddressError
from barnraise.transport import Connection, Keys
from barnraise.transport.base import Address, parse
from barnraise.transport.http import inbox, marshalling
from barnraise.transport.http import listener as xmlrpc_listener
from barnraise.transport.http import server as http
from barnraise.transport.http.client import HttpClient, HttpError, proxy_for
from barnraise.transport.http.envelope import CONTENT_LIMIT, PULL, PUSH, Asker, pack, unpack
from barnraise.transport.http.listener import XmlRpcListener
from barnraise.transport.http.noise import Initiator
from barnraise.wire.messages import CHUNK_BYTES

SERVER = Keys.generate()
PATIENCE = 60.0
NETWORK = transport.create("xmlrpc")


def run(test: Coroutine[Any, Any, None]) -> None:
    async def in_time() -> None:
        await asyncio.wait_for(test, PATIENCE)

    asyncio.run(in_time())


@asynccontextmanager
async def listening(uri: str = "xmlrpc://127.0.0.1:0") -> AsyncIterator[tuple[XmlRpcListener, str]]:
    listener = XmlRpcListener()
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


async def raw(uri: str, data: bytes) -> bytes:
    """Return the answer of the port to `data`, until it hangs up or is silent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", parse(uri).port)
    answer = b""
    try:
        writer.write(data)
        writer.write_eof()
        with contextlib.suppress(TimeoutError, OSError):
            async with asyncio.timeout(2):
                answer = await reader.read(1 << 20)
    except OSError:
        pass
    finally:
        writer.close()
    return answer


def post(body: bytes, path: str = "/RPC2", headers: str = "") -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


class Hand:
    """A session driven by hand, over any XML-RPC client."""

    def __init__(self, uri: str, keys: Keys) -> None:
        self.url = f"http://127.0.0.1:{parse(uri).port}/RPC2"
        initiator = Initiator(keys, SERVER.public)
        answer = xmlrpc.client.ServerProxy(self.url).barnraise.open(initiator.start())
        self.session, self.ciphers = initiator.finish(answer.data)
        self.push, self.pull = (Asker(self.session, channel, self.ciphers) for channel in (PUSH, PULL))

    def exchange(self, envelope: bytes) -> bytes:
        return xmlrpc.client.ServerProxy(f"{self.url}/{self.session.hex()}").barnraise.exchange(envelope).data


def test_any_xml_rpc_client_can_speak_it() -> None:
    async def test() -> None:
        keys = Keys.generate()
        async with listening() as (listener, uri):

            def client() -> list[bytes]:
                hand = Hand(uri, keys)
                request = hand.push.seal(pack([[b"header", b"raw"], [b"single"]]))
                assert hand.push.open(hand.exchange(request)) == b"\x01"
                (message,) = unpack(hand.pull.open(hand.exchange(hand.pull.seal(b""))))
                return [bytes(frame) for frame in message]

            talking = asyncio.create_task(asyncio.to_thread(client))
            first, second = await listener.receive(), await listener.receive()
            assert first is not None
            assert second is not None
            assert ([bytes(frame) for frame in first.frames], first.peer.key) == ([b"header", b"raw"], keys.public)
            assert second.frames == [b"single"]
            listener.send(first.peer, [b"answer", b"bytes"])
            assert await talking == [b"answer", b"bytes"]

    run(test())


def test_a_replayed_or_altered_request_is_refused_and_a_repeated_one_is_not_carried_out_twice() -> None:
    async def test() -> None:
        async with listening() as (listener, uri):
            hand = await asyncio.to_thread(Hand, uri, Keys.generate())
            first, second = (hand.push.seal(pack([[word]])) for word in (b"1", b"2"))

            async def fault(envelope: bytes) -> int:
                with pytest.raises(xmlrpc.client.Fault) as caught:
                    await asyncio.to_thread(hand.exchange, envelope)
                return caught.value.faultCode

            assert await fault(second) == marshalling.NOT_NEXT
            reply = await asyncio.to_thread(hand.exchange, first)
            assert await asyncio.to_thread(hand.exchange, first) == reply
            assert await fault(second[:-1] + bytes([second[-1] ^ 1])) == marshalling.NOT_NEXT
            await asyncio.to_thread(hand.exchange, second)
            assert await fault(first) == marshalling.NOT_NEXT
            assert [one.frames for one in await listener.receive_many()] == [[b"1"], [b"2"]]

    run(test())


def test_a_sealed_batch_that_lies_ends_its_session() -> None:
    async def test() -> None:
        async with listening() as (listener, uri):
            for content in (b"\xff" * 50, b"\x00", b"\x01\xff\xff\xff\xff"):
                hand = await asyncio.to_thread(Hand, uri, Keys.generate())
                with pytest.raises(xmlrpc.client.Fault, match="batch of"):
                    await asyncio.to_thread(hand.exchange, hand.push.seal(content))
                assert not listener._sessions

    run(test())


def test_a_handshake_alone_makes_no_session() -> None:
    """It may be a replay: it displaces no session, brings no message, and is forgotten when many more come."""

    async def test() -> None:
        keys = Keys.generate()
        async with listening() as (listener, uri), connected(uri, keys) as connection:
            await connection.send([b"hello"])
            received = await listener.receive()
            assert received is not None
            client = HttpClient(parse(uri))
            message = Initiator(keys, SERVER.public).start()
            call = marshalling.write_call(marshalling.OPEN, message)
            for _ in range(xmlrpc_listener.HANDSHAKES_A_SECOND // 2):
                await client.post("/RPC2", call, limit=4096, seconds=10)
            assert listener.send(received.peer, [b"still here"])
            assert await connection.receive() == [b"still here"]
            assert connection.num_connects == 1
            assert len(listener._sessions) <= xmlrpc_listener.MAX_UNPROVEN + 1
            client.close()

    run(test())


def test_sessions_and_handshakes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xmlrpc_listener, "MAX_UNPROVEN", 3)
    monkeypatch.setattr(xmlrpc_listener, "MAX_SESSIONS", 5)

    async def test() -> None:
        async with listening() as (listener, uri):
            keys = Keys.generate()
            for _ in range(5):
                await asyncio.to_thread(Hand, uri, Keys.generate())
            assert len(listener._sessions) == 3
            for _ in range(6):  # connections of one key, each proven: the oldest are closed
                hand = await asyncio.to_thread(Hand, uri, keys)
                await asyncio.to_thread(hand.exchange, hand.push.seal(pack([[b"x"]])))
            proven = [one for one in listener._sessions.values() if one.peer.route not in listener._unproven]
            assert len(proven) == xmlrpc_listener.SESSIONS_A_KEY
            for _ in range(3):
                hand = await asyncio.to_thread(Hand, uri, Keys.generate())
                with contextlib.suppress(xmlrpc.client.Fault):
                    await asyncio.to_thread(hand.exchange, hand.push.seal(pack([[b"x"]])))
            assert len(listener._sessions) - len(listener._unproven) == 5
            monkeypatch.setattr(xmlrpc_listener, "HANDSHAKES_A_SECOND", 0)
            with pytest.raises(xmlrpc.client.Fault, match="too many"):
                await asyncio.to_thread(Hand, uri, keys)

    run(test())


def test_strangers_sessions_make_room_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xmlrpc_listener, "MAX_STRANGERS", 3)
    monkeypatch.setattr(xmlrpc_listener, "MAX_SESSIONS", 5)

    async def test() -> None:
        async with listening() as (listener, uri):
            member = Keys.generate()
            listener.members = {member.public}
            for index in range(8):
                hand = await asyncio.to_thread(Hand, uri, member if index == 1 else Keys.generate())
                await asyncio.to_thread(hand.exchange, hand.push.seal(pack([[b"x"]])))
            keys = [session.peer.key for session in listener._sessions.values()]
            assert len(keys) == 4
            assert keys[0] == member.public

    run(test())


def test_silent_sessions_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with listening() as (listener, uri):
            hand = await asyncio.to_thread(Hand, uri, Keys.generate())
            await asyncio.to_thread(hand.exchange, hand.push.seal(pack([[b"x"]])))
            received = await listener.receive()
            assert received is not None
            assert listener.send(received.peer, [b"x"])
            monkeypatch.setattr(xmlrpc_listener, "IDLE_SECONDS", -1.0)
            listener._sweep()
            assert not listener.send(received.peer, [b"x"])
            with pytest.raises(xmlrpc.client.ProtocolError, match="404"):
                await asyncio.to_thread(hand.exchange, hand.push.seal(pack([[b"x"]])))

    run(test())


def test_a_sender_waits_for_a_listener_that_does_not_read() -> None:
    async def test() -> None:
        async with listening() as (listener, uri), connected(uri) as connection:
            chunk = bytes(CHUNK_BYTES)
            num_sent = 0

            async def send() -> None:
                nonlocal num_sent
                while True:
                    await connection.send([b"%d" % num_sent, chunk])
                    num_sent += 1

            sending = asyncio.create_task(send())
            seen = -1
            while seen != num_sent or not num_sent:
                seen = num_sent
                await asyncio.sleep(0.3)
            assert listener._inbox.num_bytes <= inbox.BYTES // 4 + 2 * CONTENT_LIMIT
            assert num_sent * CHUNK_BYTES <= 2 * inbox.BYTES
            heads: list[bytes] = []
            enough = 2 * num_sent
            while len(heads) < enough:
                heads += [bytes(one.frames[0]) for one in await listener.receive_many()]
            assert heads == [b"%d" % index for index in range(len(heads))]
            sending.cancel()

    run(test())


def test_queued_messages_are_sent_before_a_connection_closes() -> None:
    async def test() -> None:
        async with listening() as (listener, uri):
            connection = NETWORK.connection()
            await connection.open(uri, SERVER.public, Keys.generate())
            await connection.ready(PATIENCE)
            for index in range(10):
                await connection.send([b"%d" % index])
            await connection.close(linger=5.0)
            received: list[bytes] = []
            while len(received) < 10:
                received += [bytes(one.frames[0]) for one in await listener.receive_many()]
            assert received == [b"%d" % index for index in range(10)]
            assert not listener._sessions, "it said goodbye"

    run(test())


def test_a_lost_answer_loses_and_repeats_nothing() -> None:
    """A proxy between the two hangs up after every request, and drops every third answer."""

    async def test() -> None:
        async with listening() as (listener, uri):
            port, served = parse(uri).port, [0]

            async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                    head = await reader.readuntil(b"\r\n\r\n")
                    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
                    request = head + await reader.readexactly(length)
                    up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
                    up_writer.write(request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
                    answer = await up_reader.read()
                    served[0] += 1
                    if served[0] % 3:
                        writer.write(answer)
                        await writer.drain()
                    up_writer.close()
                writer.close()

            relaying = await asyncio.start_server(relay, "127.0.0.1", 0)
            there = f"xmlrpc://127.0.0.1:{relaying.sockets[0].getsockname()[1]}"
            async with connected(there) as connection:
                await connection.ready(PATIENCE)
                received: list[bytes] = []
                for index in range(12):
                    await connection.send([b"%d" % index])
                    one = await listener.receive()
                    assert one is not None
                    received.append(bytes(one.frames[0]))
                    listener.send(one.peer, [b"answer %d" % index])
                    assert await connection.receive() == [b"answer %d" % index]
                assert received == [b"%d" % index for index in range(12)]
                assert connection.num_connects == 1
            relaying.close()

    run(test())


def test_http_that_is_none_of_ours_is_answered_with_a_status() -> None:
    async def test() -> None:
        async with listening() as (_, uri):
            unknown = "/RPC2/" + "0" * 32
            for request, status in [
                (b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", b"405"),
                (post(b"x", "/"), b"404"),
                (post(b"x", unknown), b"404"),
                (post(b"x", "/RPC2/zz" + "0" * 30), b"404"),
                (post(bytes(5000)), b"413"),
                (b"POST /RPC2 HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999\r\n\r\n", b"413"),
                (
                    b"POST /RPC2 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1388\r\n" + bytes(5000),
                    b"411",
                ),
                (post(b"x", headers="Content-Encoding: gzip\r\n"), b"415"),
                (post(b"0\r\n\r\n", headers="Transfer-Encoding: chunked\r\n"), b"400"),
                (b"POST /RPC2 HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 20_000, b"431"),
                (b"\xff\xfe\r\n\r\n", b"400"),
                (b"POST /RPC2 HTTP/1.1\nHost: h\nContent-Length: 1\n\nx", b"400"),
                (b"POST /RPC2 HTTP/1.1\r\nHost: h\r\nX: y\nContent-Length: 1\r\n\r\nx", b"400"),
                (b"\r\n" + post(b"x"), b"400"),
                (post(b"x", headers="X: y\r\n z\r\n"), b"400"),
                (post(b"x", headers="X: y\r\n\tz\r\n"), b"400"),
                (post(b"x", headers="Content-Length: 1\r\n"), b"400"),
                *[
                    (b"POST /RPC2 HTTP/1.1\r\nHost: h\r\nContent-Length: %s\r\n\r\nabcde" % length, b"400")
                    for length in (b"5,5", b"5, 5", b"+5", b"-5", b"0x5", b"5 5", b"", b"1_0")
                ],
                (post(b"x", headers="".join(f"X{n}: y\r\n" for n in range(5000))), b"431"),
                (post(b"x", headers="".join(f"X{n}: y\r\n" for n in range(200))), b"431"),
            ]:
                answer = await raw(uri, request)
                assert answer.split(b" ")[1] == status, (request[:60], answer[:60])
            assert b"faultCode" in await raw(uri, post(b"<methodCall/>"))
            call = marshalling.write_call("barnraise.open", b"x").decode()
            for other in (call.encode("utf-16"), call.encode("utf-16-le"), call.encode("utf-8-sig")):
                assert b"faultString" in (answer := await raw(uri, post(other)))
                assert b"XML-RPC" in answer
            named = call.replace("'1.0'", "'1.0' encoding='iso-8859-1'").encode()
            assert b"in UTF-8" in await raw(uri, post(named))
            assert b"HTTP/1.1 100 " in await raw(
                uri, post(marshalling.write_call("barnraise.open", b"x"), headers="Expect: 100-continue\r\n")
            )

    run(test())


def test_slow_clients_are_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "HEAD_SECONDS", 0.2)

    async def test() -> None:
        async with listening() as (_, uri):
            for begun in (b"", b"POST /RPC2 HT", post(bytes(100))[:-50]):
                reader, writer = await asyncio.open_connection("127.0.0.1", parse(uri).port)
                writer.write(begun)
                assert await reader.read() == b""
                writer.close()

    run(test())


def test_past_the_limit_the_oldest_connection_without_a_proof_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 16)

    async def test() -> None:
        async with listening() as (listener, uri), connected(uri) as connection:
            await connection.send([b"hello"])
            received = await listener.receive()
            assert received is not None
            held = [await asyncio.open_connection("127.0.0.1", parse(uri).port) for _ in range(40)]
            assert await held[0][0].read() == b""
            assert b" 405 " in await raw(uri, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"), "the newest is heard"
            listener.send(received.peer, [b"still here"])
            assert await connection.receive() == [b"still here"]
            assert connection.num_connects == 1
            for _, writer in held:
                writer.close()

    run(test())


def test_a_stranger_has_little_to_say() -> None:
    async def test() -> None:
        listener, member, stranger = XmlRpcListener(), Keys.generate(), Keys.generate()
        listener.members = {member.public}
        try:
            uri = await listener.bind("xmlrpc://127.0.0.1:0", SERVER)
            for keys in (member, stranger):
                hand = await asyncio.to_thread(Hand, uri, keys)
                await asyncio.to_thread(hand.exchange, hand.push.seal(pack([[b"who I want to be"]])))
                large = hand.push.seal(pack([[b"x", bytes(CHUNK_BYTES)]]))
                if keys is member:
                    await asyncio.to_thread(hand.exchange, large)
                else:
                    with pytest.raises((xmlrpc.client.ProtocolError, OSError)):
                        await asyncio.to_thread(hand.exchange, large)
            heads = []
            while len(heads) < 3:
                heads += [bytes(received.frames[0]) for received in await listener.receive_many()]
            assert sorted(heads) == [b"who I want to be", b"who I want to be", b"x"]
        finally:
            await listener.close()

    run(test())


def test_unfinished_bodies_have_the_share_of_one_peer() -> None:
    async def test() -> None:
        async with listening() as (listener, uri), connected(uri) as other:
            keys = Keys.generate()
            hand = await asyncio.to_thread(Hand, uri, keys)
            await asyncio.to_thread(hand.exchange, hand.push.seal(pack([[b"hello"]])))
            assert await listener.receive() is not None
            path = f"/RPC2/{hand.session.hex()}"
            size = listener.body_limit(path)
            begun = post(bytes(size), path)[: -size // 2]
            writers = []
            for _ in range(2 * listener.budget.share // size):
                _, writer = await asyncio.open_connection("127.0.0.1", parse(uri).port)
                writer.write(begun)
                writers.append(writer)
            while listener.budget[keys.public] < size:
                await asyncio.sleep(0.01)
            for index in range(50):
                await other.send([b"%d" % index, bytes(CHUNK_BYTES)])
                received = await listener.receive()
                assert received is not None
                assert received.frames[0] == b"%d" % index
            assert listener.budget[keys.public] <= listener.budget.share
            for writer in writers:
                writer.transport.abort()
            while listener.budget[keys.public]:
                await asyncio.sleep(0.01)

    run(test())


def test_a_new_session_is_heard_however_much_is_unfinished() -> None:
    async def test() -> None:
        async with listening() as (listener, uri):
            listener.budget.charge(xmlrpc_listener.NOBODY, listener.budget.share)
            async with connected(uri) as connection:
                await connection.send([b"here I am"])
                received = await listener.receive()
                assert received is not None
                assert received.frames == [b"here I am"]

    run(test())


def test_a_batch_of_a_hundred_thousand_messages_is_refused_and_peers_take_turns() -> None:
    async def test() -> None:
        async with listening() as (listener, uri):
            hands = [await asyncio.to_thread(Hand, uri, Keys.generate()) for _ in range(3)]
            with pytest.raises(xmlrpc.client.Fault, match="more than 2048 messages"):
                await asyncio.to_thread(hands[0].exchange, hands[0].push.seal(pack([[b"x"]] * 100_000)))
            for hand, count in ((hands[1], 1000), (hands[2], 1)):
                await asyncio.to_thread(hand.exchange, hand.push.seal(pack([[b"%d" % count]] * count)))
            assert [one.frames[0] for one in await listener.receive_many(3)] == [b"1000", b"1", b"1000"]

    run(test())


def test_hostile_bytes_are_refused_without_growth() -> None:
    """Any bytes, whole requests with any body, and headers of any kind: the server answers the next client."""
    header = st.tuples(st.sampled_from(["Content-Length", "Host", "Transfer-Encoding", "X"]), st.text(max_size=20))
    request = st.one_of(
        st.binary(max_size=400),
        st.binary(max_size=400).map(post),
        st.binary(max_size=300).map(lambda content: post(marshalling.write_call("barnraise.open", content))),
        st.lists(header, max_size=4).map(
            lambda lines: ("POST /RPC2 HTTP/1.1\r\n" + "".join(f"{a}: {b}\r\n" for a, b in lines) + "\r\n").encode()
        ),
    )
    troubles: list[dict[str, Any]] = []

    async def test() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: troubles.append(context))
        async with listening() as (listener, uri):
            loop = asyncio.get_running_loop()

            @settings(max_examples=150)
            @given(request)
            def attack(data: bytes) -> None:
                asyncio.run_coroutine_threadsafe(raw(uri, data), loop).result(20)

            await asyncio.to_thread(attack)
            gc.collect()
            tracemalloc.start()
            for _ in range(200):
                await raw(uri, post(b"<" * 4000))
            gc.collect()
            grown = tracemalloc.get_traced_memory()[0]
            tracemalloc.stop()
            assert grown < 1 << 20
            assert not listener._sessions
            assert len(listener.dropped) < 6
            async with connected(uri) as connection:
                await connection.send([b"hello"])
                received = await listener.receive()
                assert received is not None
                assert received.frames == [b"hello"]

    run(test())
    assert not troubles


def test_a_server_that_is_no_controller_is_reported_as_such() -> None:
    async def test() -> None:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(100)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
            writer.close()

        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        uri = f"xmlrpc://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, connected(uri) as connection:
            with pytest.raises(AddressError, match="is not a barnraise controller"):
                await connection.ready(1.0)

    run(test())


def test_an_answer_without_end_is_cut_off() -> None:
    async def test() -> None:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            with contextlib.suppress(OSError):
                while True:
                    writer.write(b"1000\r\n" + bytes(4096) + b"\r\n")
                    await writer.drain()

        async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
            client = HttpClient(Address("xmlrpc", "127.0.0.1", server.sockets[0].getsockname()[1]))
            with pytest.raises(HttpError, match="more than 10000 bytes"):
                await client.post("/", b"", limit=10_000, seconds=10)

    run(test())


def test_proxies_are_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    there = Address("xmlrpc", "lab.example.org", 7002)
    assert proxy_for(there) is None
    monkeypatch.setenv("http_proxy", "http://proxy.example.org:3128")
    assert proxy_for(there) == "http://proxy.example.org:3128"
    assert proxy_for(Address("xmlrpc", "127.0.0.1", 7002)) is None
    monkeypatch.setenv("no_proxy", "example.org")
    assert proxy_for(there) is None


def test_a_proxy_that_is_none_is_named_and_dialled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.example.org:port")
    monkeypatch.delenv("no_proxy", raising=False)

    async def test() -> None:
        connection = NETWORK.connection()
        await connection.open("xmlrpc://lab.example.org:7002", SERVER.public, Keys.generate())
        for _ in range(2):
            with pytest.raises(AddressError, match=r"HTTP_PROXY.*http://host:port"):
                await connection.ready(0.3)
        await connection.close()

    run(test())


def test_a_proxy_is_asked_for_the_whole_address(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        seen: list[bytes] = []

        async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            seen.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(proxy, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            monkeypatch.setenv("http_proxy", f"http://me:secret@127.0.0.1:{port}")
            monkeypatch.delenv("no_proxy", raising=False)
            client = HttpClient(Address("xmlrpc", "lab.example.org", 7002))
            with pytest.raises(HttpError, match=r"through the proxy 127\.0\.0\.1.*407"):
                await client.post("/RPC2", b"x", limit=100, seconds=10)
            assert seen[0].startswith(b"POST http://lab.example.org:7002/RPC2 HTTP/1.1\r\n")
            assert b"Proxy-Authorization: Basic bWU6c2VjcmV0" in seen[0]

    run(test())
