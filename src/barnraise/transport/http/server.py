"""A small HTTP/1.1 server on the event loop: POST only, one handler, and a limit on everything.

h11 reads the protocol, after `heads` has refused each head that a proxy may read in another way. A client's memory is
HEAD_BYTES before its head is read, then the site's limit for the path: body and answer beyond READ_BYTES are charged to
an account of its budget, and reading waits while that has no room. Time limits on head, body and answer end slow
clients; and where too many connect, a `ConnectionLimiter` chooses which to close.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from http import HTTPStatus
from typing import Protocol

import h11

from barnraise.transport.budget import Budget
from barnraise.transport.connection_limiter import ConnectionLimiter
from barnraise.transport.descriptors import for_connections
from barnraise.transport.http.heads import HEAD_BYTES, HttpRefusal, content_length, whole_head

MAX_CONNECTIONS = 2304
"""Open TCP connections, or what `descriptors` leaves if that is less."""

CONNECTIONS_A_KEY = 8
"""Connections of one worker, which has two: it pushes a batch while it waits for another."""

ACCEPTED_A_TURN = 128
"""Connections accepted before those too many are closed."""

HEAD_SECONDS = 20.0
"""Limit for the first head of a connection, and the body of a small request."""

IDLE_SECONDS = 75.0
"""Limit between two requests of a connection."""

BODY_SECONDS = 120.0
"""Limit for a body, and for a client to read an answer: 1.4 MB at 0.1 Mbit/s."""

READ_BYTES = 1 << 16


class Site(Protocol):
    """The handler of an HTTP server's requests."""

    budget: Budget

    def is_member(self, key: str) -> bool:
        """Return whether a proven key belongs to a member."""

    def body_limit(self, path: str) -> int:
        """Return the largest body in bytes; 0 for an unknown path."""

    def account(self, path: str) -> str:
        """Return the account for large bodies and answers."""

    async def answer(self, path: str, body: bytes, prove: Callable[[str], str]) -> bytes:
        """Return the XML document for a POST of `body`.

        `prove` takes the key that the caller proved, and returns the address that it calls from.
        """


class HttpServer:
    """Serves `site` on one port."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        limit = for_connections(MAX_CONNECTIONS)
        self.door = ConnectionLimiter(_hang_up, site.is_member, limit=limit, a_key=CONNECTIONS_A_KEY)

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port that was taken.

        Raises OSError.
        """
        self._server = await asyncio.start_server(
            self._connected, host, port, limit=READ_BYTES, backlog=ACCEPTED_A_TURN
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            self._tasks.add(task)
            self.door.enter(task, _address_of(writer))
            await _Client(self, task, reader, writer).serve()
        except (OSError, TimeoutError, h11.ProtocolError):
            pass  # the client left, was too slow, or does not speak HTTP
        except asyncio.CancelledError:
            pass  # the server or the limiter closed; asyncio would log the cancellation of its own task as an error
        finally:
            self._tasks.discard(task)
            self.door.leave(task)
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    async def close(self) -> None:
        """Stop listening and close all connections."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=5.0)


def _address_of(writer: asyncio.StreamWriter) -> str:
    return str((writer.get_extra_info("peername") or ("",))[0])


def _hang_up(who: Hashable) -> None:
    assert isinstance(who, asyncio.Task)
    who.cancel()


class _Client:
    """One TCP connection of a client."""

    def __init__(
        self, server: HttpServer, who: Hashable, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._site, self._reader, self._writer = server.site, reader, writer
        self._door, self._who = server.door, who
        self._address = _address_of(writer)
        self._charged: list[tuple[str, int, bool]] = []  # account, bytes, and whether for an answer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)

    async def serve(self) -> None:
        """Serve one request after the other, until the client leaves or misbehaves."""
        patience = HEAD_SECONDS
        while True:
            try:
                async with asyncio.timeout(patience):
                    length = content_length(await self._head())
                    request = await self._event()
                if not isinstance(request, h11.Request):
                    return
                path, body = await self._read(request, length)
                document = await self._site.answer(path, body, self._prove)
                del body
                self._give_back()
                await self._respond(HTTPStatus.OK, document, path)
            except HttpRefusal as refusal:
                await self._respond(refusal.status, b"", last=True)
                return
            except h11.RemoteProtocolError as error:
                if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                    await self._respond(HTTPStatus(error.error_status_hint), b"", last=True)
                return
            finally:
                self._give_back()
            if self._http.our_state is h11.MUST_CLOSE:
                return
            self._http.start_next_cycle()
            patience = IDLE_SECONDS

    def _prove(self, key: str) -> str:
        self._door.prove(self._who, key)
        return self._address

    async def _head(self) -> bytes:
        """Return the next head, which h11 has, too; empty when the client has left.

        Raises HttpRefusal.
        """
        while (head := whole_head(self._http.trailing_data[0])) is None:
            data = await self._reader.read(READ_BYTES)
            self._http.receive_data(data)
            if not data:
                return b""
        return head

    async def _read(self, request: h11.Request, length: int) -> tuple[str, bytes]:
        """Return path and body, which has an announced length.

        Raises HttpRefusal.
        """
        headers = dict(request.headers)
        path = request.target.decode("ascii", "replace").partition("?")[0]
        if request.method != b"POST":
            raise HttpRefusal(HTTPStatus.METHOD_NOT_ALLOWED)
        limit = self._site.body_limit(path)
        if not limit:
            raise HttpRefusal(HTTPStatus.NOT_FOUND)
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise HttpRefusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        if b"transfer-encoding" in headers:  # beside a length, a proxy may use the other one
            both = b"content-length" in headers
            raise HttpRefusal(HTTPStatus.BAD_REQUEST if both else HTTPStatus.LENGTH_REQUIRED)
        if length > limit:
            raise HttpRefusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if self._http.they_are_waiting_for_100_continue:
            await self._write(self._http.send(h11.InformationalResponse(status_code=100, headers=[])))
        body = bytearray()
        async with asyncio.timeout(HEAD_SECONDS if limit <= READ_BYTES else BODY_SECONDS):
            while isinstance(event := await self._event(), h11.Data):
                if len(body) + len(event.data) > limit:
                    raise HttpRefusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
                if (
                    len(body) + len(event.data) > READ_BYTES
                ):  # small messages are always read, however much is unfinished
                    await self._take(path, len(event.data))
                body += event.data
        if not isinstance(event, h11.EndOfMessage):
            raise HttpRefusal(HTTPStatus.BAD_REQUEST)
        return path, bytes(body)

    async def _take(self, path: str, size: int) -> None:
        """Wait until these bytes have room; no more is read from the client meanwhile."""
        budget = self._site.budget
        while not budget.take(account := self._site.account(path), size):
            await budget.freed()
        self._charged.append((account, size, False))

    def _give_back(self) -> None:
        while self._charged:
            account, size, answer = self._charged.pop()
            self._site.budget.give(account, size, answer=answer)

    async def _event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(READ_BYTES))
        return event

    async def _respond(self, status: HTTPStatus, document: bytes, path: str = "", *, last: bool = False) -> None:
        if len(document) > READ_BYTES:
            account = self._site.account(path)
            if not self._site.budget.take(account, len(document), answer=True):
                raise HttpRefusal(HTTPStatus.SERVICE_UNAVAILABLE)  # the client may ask for the same answer again
            self._charged.append((account, len(document), True))
        headers = [("Content-Type", "text/xml"), ("Content-Length", str(len(document))), ("Cache-Control", "no-store")]
        if last:
            headers.append(("Connection", "close"))
        response = h11.Response(status_code=status, reason=status.phrase, headers=headers)
        events = (response, h11.Data(data=document), h11.EndOfMessage())
        await self._write(b"".join(self._http.send(event) or b"" for event in events))

    async def _write(self, data: bytes | None) -> None:
        self._writer.write(data or b"")
        async with asyncio.timeout(BODY_SECONDS):
            await self._writer.drain()
