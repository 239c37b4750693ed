"""A small HTTP/1.1 server on the event loop: POST only, one handler, and a limit on everything. h11 reads the protocol.

What a client can make it hold is HEAD_BYTES before its head is read, then what `body_limit` says for the path; how long
it can hold that is bounded by time limits on head, body and answer, so that slow clients go away by themselves.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import h11

from barnraise.core.errors import WireError

MAX_CONNECTIONS = 2304
"""Open TCP connections, or half of the files this process may open if that is less; further ones are closed at once."""

HEAD_BYTES = 8192
"""Request line and headers."""

HEAD_SECONDS = 20.0
"""For the first head of a connection, and the body of a small request."""

IDLE_SECONDS = 75.0
"""Between two requests of a connection."""

BODY_SECONDS = 120.0
"""For a body, and for an answer to be taken: 1.4 MB at 0.1 Mbit/s."""

READ_BYTES = 1 << 16

Answer = Callable[[str, bytes], Awaitable[bytes]]
"""The XML document for a POST of `body` to a path."""


class HttpRefusal(WireError):
    """A request that gets no answer but this status."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class HttpServer:
    """Serves `answer` on one port. `body_limit` gives a path's largest body in bytes, 0 for a path that is none."""

    def __init__(self, body_limit: Callable[[str], int], answer: Answer) -> None:
        self.body_limit, self.answer = body_limit, answer
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._max_connections = MAX_CONNECTIONS if files == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, files // 2)

    async def start(self, host: str, port: int) -> int:
        """Listen; the port that was taken. Raises OSError."""
        self._server = await asyncio.start_server(self._connected, host, port, limit=READ_BYTES, backlog=512)
        return int(self._server.sockets[0].getsockname()[1])

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            if len(self._tasks) >= self._max_connections:
                return
            self._tasks.add(task)
            await _Client(self, reader, writer).serve()
        except (OSError, TimeoutError, h11.ProtocolError):
            pass  # the client left, was too slow, or does not speak HTTP
        except asyncio.CancelledError:
            pass  # the server is closed; asyncio would log the cancellation of its own task as an error
        finally:
            self._tasks.discard(task)
            writer.transport.abort() if writer.transport.get_write_buffer_size() else writer.close()

    async def close(self) -> None:
        """Stop listening and hang up on everybody."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=5.0)


class _Client:
    """One TCP connection."""

    def __init__(self, server: HttpServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server, self._reader, self._writer = server, reader, writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)

    async def serve(self) -> None:
        """One request after the other, until the client leaves or does not behave."""
        patience = HEAD_SECONDS
        while True:
            try:
                async with asyncio.timeout(patience):
                    request = await self._event()
                if not isinstance(request, h11.Request):
                    return
                path, body = await self._read(request)
                document = await self._server.answer(path, body)
            except HttpRefusal as refusal:
                await self._respond(refusal.status, b"", last=True)
                return
            except h11.RemoteProtocolError as error:
                if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                    await self._respond(HTTPStatus(error.error_status_hint), b"", last=True)
                return
            await self._respond(HTTPStatus.OK, document)
            if self._http.our_state is h11.MUST_CLOSE:
                return
            self._http.start_next_cycle()
            patience = IDLE_SECONDS

    async def _read(self, request: h11.Request) -> tuple[str, bytes]:
        """Path and body. A body that is too long is refused by its announced length, else where it passes the limit."""
        headers = dict(request.headers)
        path = request.target.decode("ascii", "replace").partition("?")[0]
        if request.method != b"POST":
            raise HttpRefusal(HTTPStatus.METHOD_NOT_ALLOWED)
        limit = self._server.body_limit(path)
        if not limit:
            raise HttpRefusal(HTTPStatus.NOT_FOUND)
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise HttpRefusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        announced = headers.get(b"content-length", b"0")
        if len(announced) > 12 or int(announced) > limit:
            raise HttpRefusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if self._http.they_are_waiting_for_100_continue:
            await self._write(self._http.send(h11.InformationalResponse(status_code=100, headers=[])))
        body = bytearray()
        async with asyncio.timeout(HEAD_SECONDS if limit < READ_BYTES else BODY_SECONDS):
            while isinstance(event := await self._event(), h11.Data):
                body += event.data
                if len(body) > limit:
                    raise HttpRefusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if not isinstance(event, h11.EndOfMessage):
            raise HttpRefusal(HTTPStatus.BAD_REQUEST)
        return path, bytes(body)

    async def _event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(READ_BYTES))
        return event

    async def _respond(self, status: HTTPStatus, document: bytes, *, last: bool = False) -> None:
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
