"""A plain REQ socket against the controller's ROUTER: one question, one answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import zmq
import zmq.asyncio

from barnraise import transport
from barnraise.core.errors import AddressError
from barnraise.transport import Delivery, Keys, Listener
from barnraise.transport.base import parse
from barnraise.transport.zmq import answering
from barnraise.transport.zmq.listener import ZmqListener
from barnraise.transport.zmq.simple import SimpleClient
from barnraise.wire.messages import RequestTask

SERVER = Keys.generate()
PATIENCE = 60.0


def run(test: Coroutine[Any, Any, None]) -> None:
    async def in_time() -> None:
        await asyncio.wait_for(test, PATIENCE)

    asyncio.run(in_time())


class Inbox:
    """Reads a listener all the time, as a controller does."""

    def __init__(self, listener: Listener) -> None:
        self.messages: asyncio.Queue[Delivery] = asyncio.Queue()
        self._listener = listener
        self.task = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        while batch := await self._listener.receive_many():
            for received in batch:
                self.messages.put_nowait(received)


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[Listener, str, asyncio.Queue[Delivery]]]:
    listener = transport.create("zmq").listener()
    try:
        uri = await listener.bind("zmq://127.0.0.1:0", SERVER)
        inbox = Inbox(listener)
        yield listener, uri, inbox.messages
    finally:
        await listener.close()
        await inbox.task


@asynccontextmanager
async def asking(uri: str, keys: Keys) -> AsyncIterator[Any]:
    """Yield a function that asks a question (frames) and returns its answer."""
    with zmq.asyncio.Context() as context, context.socket(zmq.REQ) as socket:
        socket.linger = 0
        socket.curve_secretkey, socket.curve_publickey = keys.secret.encode(), keys.public.encode()
        socket.curve_serverkey = SERVER.public.encode()
        socket.connect(f"tcp://127.0.0.1:{parse(uri).port}")

        async def ask(*frames: bytes) -> list[bytes]:
            await socket.send_multipart(frames)
            return await socket.recv_multipart()

        yield ask


def test_questions_and_answers_take_turns() -> None:
    async def test() -> None:
        keys = Keys.generate()
        async with listening() as (listener, uri, inbox), asking(uri, keys) as ask:
            for index in range(5):
                waiting = asyncio.ensure_future(ask(b"question %d" % index))
                received = await inbox.get()
                assert (received.frames, received.peer.key) == ([b"question %d" % index], keys.public)
                listener.send(received.peer, [b"answer %d" % index, b"raw"])
                assert await waiting == [b"answer %d" % index, b"raw"]

    run(test())


def test_messages_wait_in_order_for_the_next_question() -> None:
    async def test() -> None:
        async with listening() as (listener, uri, inbox), asking(uri, Keys.generate()) as ask:
            assert await ask(b"hello", b"") == [b""], "nothing was awaited"
            received = await inbox.get()
            assert received.frames == [b"hello"]
            for index in range(3):
                assert listener.send(received.peer, [b"%d" % index])
            assert [await ask(b"") for _ in range(4)] == [[b"0"], [b"1"], [b"2"], [b""]]

    run(test())


def test_a_raw_frame_is_answered_at_once_and_a_bare_question_is_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "REPLY_SECONDS", 30.0)

    async def test() -> None:
        async with listening() as (listener, uri, inbox), asking(uri, Keys.generate()) as ask:
            began = time.monotonic()
            assert await ask(b"part", b"raw") == [b""]
            received = await inbox.get()
            assert [bytes(frame) for frame in received.frames] == [b"part", b"raw"]
            waiting = asyncio.ensure_future(ask(b""))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            assert inbox.empty()
            listener.send(received.peer, [b"news"])
            assert await waiting == [b"news"]
            assert time.monotonic() - began < 20

    run(test())


def test_an_asker_that_does_not_come_back_has_a_mailbox_with_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "MAX_ASKERS", 2)

    async def test() -> None:
        async with listening() as (listener, uri, inbox):
            assert isinstance(listener, ZmqListener)
            async with AsyncExitStack() as stack:
                for _ in range(4):
                    ask = await stack.enter_async_context(asking(uri, Keys.generate()))
                    await ask(b"hello", b"")
                    received = await inbox.get()
                    num_sent = 0
                    while listener.send(received.peer, [b"x", bytes(1000)]):
                        num_sent += 1
                        assert num_sent < 100
                assert len(listener._answers._askers) == 2
            while listener._answers._askers or listener.budget.waiting:
                await asyncio.sleep(0.01)

    run(test())


def test_a_revoked_key_has_no_answers() -> None:
    async def test() -> None:
        keys = Keys.generate()
        async with listening() as (listener, uri, inbox), asking(uri, keys) as ask:
            await ask(b"hello", b"")
            await inbox.get()
            listener.revoke(keys.public)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(ask(b""), 1.0)

    run(test())


def test_a_simple_client_reports_a_missing_answer() -> None:
    with (
        SimpleClient("zmq://127.0.0.1:1", SERVER.public, Keys.generate(), seconds=0.2) as client,
        pytest.raises(AddressError, match=r"no answer from zmq://127\.0\.0\.1:1 within 0\.2 s"),
    ):
        client.ask(RequestTask(0))
    with pytest.raises(AddressError, match="speaks ZMQ"):
        SimpleClient("xmlrpc://127.0.0.1:1", SERVER.public, Keys.generate())
