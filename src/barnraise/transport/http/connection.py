"""A worker's end of XML-RPC over HTTP: it shakes hands, then pushes and pulls until an error, and again."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence

from barnraise.core.errors import AddressError, WireError
from barnraise.transport.base import BATCH_BYTES, BATCH_MESSAGES, Connection, parse
from barnraise.transport.http import marshalling
from barnraise.transport.http.client import HttpClient, HttpError
from barnraise.transport.http.envelope import (
    AGAIN,
    CONTENT_LIMIT,
    ENVELOPE_LIMIT,
    PULL,
    PUSH,
    SESSION_BYTES,
    WANTED,
    Asker,
    Pace,
    pack,
    packed_bytes,
    unpack,
)
from barnraise.transport.http.noise import Ciphers, Initiator
from barnraise.transport.identity import Keys
from barnraise.transport.waking import Signal
from barnraise.wire.frames import Buffer, num_bytes

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds before dialling again; the pause doubles until a handshake succeeds."""

RETRIES = (0.1, 0.3, 1.0, 2.0)
"""Seconds before an unanswered request is repeated with the same bytes; after the last, the session is lost."""

REQUEST_SECONDS = 150.0
"""Limit of a request: longer than a poll, and than a large batch takes on a slow link."""

RAW_QUEUE, SINGLE_QUEUE = 4, 256
"""Messages that wait to be pushed: the queue that a heartbeat may have to wait for."""

PULL_AHEAD = 1 << 20
"""Bytes that may wait for the reader while more are requested."""

_REPLY_LIMIT = marshalling.limit(ENVELOPE_LIMIT)


class XmlRpcConnection(Connection):
    """A short queue up, a short queue down, and a task that keeps a session."""

    def __init__(self) -> None:
        super().__init__()
        self._closed = False
        self._outbox: deque[list[Buffer]] = deque()
        self._num_raw = 0
        self._inbox: deque[list[Buffer]] = deque()
        self._inbox_bytes = 0
        self._single, self._bulk = asyncio.Lock(), asyncio.Lock()
        self._filled, self._room, self._arrived, self._read = Signal(), Signal(), Signal(), Signal()
        self._leaving = False
        self._pause = FIRST_PAUSE
        self._trouble = ""
        self._task: asyncio.Task[None] | None = None

    async def open(self, uri: str, server_key: str, keys: Keys) -> None:
        self._address, self._server_key, self._keys = parse(uri), server_key, keys
        self._task = asyncio.ensure_future(self._keep_session())

    async def _keep_session(self) -> None:
        while not self._leaving:
            try:
                await self._dial()
            except Exception as error:  # after any error this task continues: no other task would dial again
                self._trouble = f"{type(error).__name__}: {error}"
            await asyncio.sleep(self._pause)
            self._pause = min(2 * self._pause, LONGEST_PAUSE)

    async def _dial(self) -> None:
        try:
            push_client, pull_client = HttpClient(self._address), HttpClient(self._address)
        except AddressError as error:
            self._trouble = str(error)
            return
        try:
            await self._session(push_client, pull_client)
        except (AddressError, WireError) as error:
            self._trouble = _words(error, push_client.where)
        finally:
            push_client.close()
            pull_client.close()

    async def _session(self, push_client: HttpClient, pull_client: HttpClient) -> None:
        """Shake hands, then push and pull; returns or raises when the session is over."""
        initiator = Initiator(self._keys, self._server_key)
        call = marshalling.write_call(marshalling.OPEN, initiator.start())
        document = await push_client.post(marshalling.PATH, call, limit=marshalling.HANDSHAKE_BYTES, seconds=15.0)
        session, ciphers = initiator.finish(marshalling.read_response(document))
        if len(session) != SESSION_BYTES:
            raise WireError(f"a session's name has {SESSION_BYTES} bytes, this one {len(session)}")
        self._pause = FIRST_PAUSE
        self.connected = True
        self.num_connects += 1
        self._changed.wake()
        tasks = [
            asyncio.ensure_future(self._push(push_client, session, ciphers)),
            asyncio.ensure_future(self._pull(pull_client, session, ciphers)),
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self.connected = False
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _push(self, client: HttpClient, session: bytes, ciphers: Ciphers) -> None:
        asker, pace = Asker(session, PUSH, ciphers), Pace()
        while not self._leaving or self._outbox:
            if not self._outbox:
                await self._filled.wait()
                continue
            batch = self._take_batch(pace.num_bytes)
            content, began = pack(batch), time.monotonic()
            try:
                while asker.open(await _ask(client, asker.seal(content))) == AGAIN:
                    pass
            except HttpError as error:
                if not error.arrived:  # safe to push in the next session: it cannot arrive twice
                    self._outbox.extendleft(reversed(batch))
                    self._num_raw += sum(len(frames) > 1 for frames in batch)
                raise
            pace.note(len(content), time.monotonic() - began)
        await _ask(client, asker.seal(b""))  # goodbye

    def _take_batch(self, limit: int) -> list[list[Buffer]]:
        batch: list[list[Buffer]] = []
        size = 0
        while self._outbox and (not batch or size + packed_bytes(self._outbox[0]) <= limit):
            frames = self._outbox.popleft()
            self._num_raw -= len(frames) > 1
            size += packed_bytes(frames)
            batch.append(frames)
        self._room.wake()
        return batch

    async def _pull(self, client: HttpClient, session: bytes, ciphers: Ciphers) -> None:
        asker, pace = Asker(session, PULL, ciphers), Pace()
        while True:
            while self._inbox_bytes > PULL_AHEAD:
                await self._read.wait()
            content = asker.open(await _ask(client, asker.seal(WANTED.pack(pace.num_bytes))))
            pace.note(len(content), client.body_seconds)
            batch = unpack(content)
            for frames in batch:
                self._inbox.append(frames)
                self._inbox_bytes += sum(map(num_bytes, frames))
            if batch:
                self._arrived.wake()

    async def _diagnosis(self) -> str:
        return self._trouble or f"{self._address.host}, port {self._address.port} has not answered yet"

    def redial(self) -> None:
        if self._closed or self._task is None:
            return
        self._task.cancel()
        self.connected = False
        self._pause = FIRST_PAUSE
        self._task = asyncio.ensure_future(self._keep_session())

    async def send(self, frames: Sequence[Buffer]) -> bool:
        if packed_bytes(frames) > CONTENT_LIMIT:
            raise WireError(f"a message of {packed_bytes(frames)} bytes, but at most {CONTENT_LIMIT} are carried")
        single = len(frames) == 1
        async with self._single if single else self._bulk:
            while not self._closed:
                while not single and self._single.locked():
                    async with self._single:
                        pass  # small messages first
                num_single = len(self._outbox) - self._num_raw
                if self._closed or (num_single < SINGLE_QUEUE if single else self._num_raw < RAW_QUEUE):
                    break
                await self._room.wait()
            if not self._closed:
                self._outbox.append([bytes(frame) for frame in frames])
                self._num_raw += not single
                self._filled.wake()
        return not self._closed

    async def receive_many(self, limit: int = BATCH_MESSAGES) -> list[list[Buffer]]:
        await asyncio.sleep(0)
        while not self._closed:
            batch: list[list[Buffer]] = []
            size = 0
            while self._inbox and len(batch) < limit and size < BATCH_BYTES:
                batch.append(self._inbox.popleft())
                length = sum(map(num_bytes, batch[-1]))
                size += length
                self._inbox_bytes -= length
            self._read.wake()
            if batch:
                return batch
            await self._arrived.wait()
        return []

    async def close(self, linger: float = 0.0) -> None:
        if self._closed:
            return
        self._leaving = True
        self._filled.wake()
        if self._task is not None:
            if self.connected and linger:
                await asyncio.wait([self._task], timeout=linger)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._closed = True
        self.connected = False
        for signal in (self._arrived, self._room, self._filled, self._read):
            signal.wake()


async def _ask(client: HttpClient, envelope: bytes) -> bytes:
    """Return the reply to a request, which is repeated while the network fails."""
    call = marshalling.write_call(marshalling.EXCHANGE, envelope)
    path = f"{marshalling.PATH}/{envelope[:SESSION_BYTES].hex()}"
    arrived = False
    for pause in (*RETRIES, None):
        try:
            return marshalling.read_response(await client.post(path, call, limit=_REPLY_LIMIT, seconds=REQUEST_SECONDS))
        except HttpError as error:
            arrived = error.arrived = arrived or error.arrived
            if pause is None or error.status == 404:  # the session is unknown to the controller
                raise
            await asyncio.sleep(pause)
    raise AssertionError("the last attempt raises")


def _words(error: Exception, where: str) -> str:
    """Return why the connection fails, and the remedy."""
    if isinstance(error, marshalling.CallFault):
        if error.code == marshalling.REFUSED:
            return f"the controller at {where} refuses this machine's key, which was revoked: ask the host"
        if error.code == marshalling.OTHER_KEY:
            return (
                f"the controller at {where} has another key than the one in the invite, which is perhaps of an older "
                "run: ask the host for a new one"
            )
        return f"the controller at {where} says: {error}"
    if isinstance(error, WireError):
        return f"what answers at {where} is not a barnraise controller ({error}): ask the host for a new invite"
    return f"{error}: check that the controller runs, and that no firewall or proxy is in between"
