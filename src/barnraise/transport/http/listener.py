"""The controller's end of XML-RPC over HTTP: sessions by handshake, a bounded inbox, a mailbox for each session."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Sequence

from barnraise.core.errors import AddressError, WireError
from barnraise.transport.base import (
    BATCH_MESSAGES,
    Address,
    Delivery,
    Listener,
    Peer,
    bind_error,
    parse,
)
from barnraise.transport.budget import Budget
from barnraise.transport.http import marshalling
from barnraise.transport.http.envelope import (
    AGAIN,
    BATCH,
    CONTENT_LIMIT,
    ENVELOPE_LIMIT,
    PULL,
    PUSH,
    SESSION_BYTES,
    TAKEN,
    WANTED,
    Answerer,
    pack,
    packed_bytes,
    split,
    unpack,
)
from barnraise.transport.http.inbox import Inbox
from barnraise.transport.http.noise import Ciphers, Responder
from barnraise.transport.http.server import HttpServer
from barnraise.transport.identity import Keys
from barnraise.transport.mailbox import Mailbox
from barnraise.transport.names import numeric
from barnraise.transport.waking import Signal
from barnraise.wire.frames import Buffer
from barnraise.wire.messages import ENROL_LIMIT

POLL_SECONDS = 20.0
"""Seconds that a request for messages waits for one: less than any proxy's timeout."""

ROOM_SECONDS = 20.0
"""Seconds that a batch waits for room in the controller, before its sender must repeat it."""

IDLE_SECONDS = 90.0
"""Seconds of silence after which a session ends."""

PROVING_SECONDS = 15.0
"""The same for a session whose client is not proven yet."""

MAX_SESSIONS, SESSIONS_A_KEY = 1024, 4

MAX_UNPROVEN = MAX_STRANGERS = 256
"""Sessions whose client is not proven yet, or whose key is no member's; the oldest make room."""

HANDSHAKES_A_SECOND = 200

PULL_SECONDS = 150.0
"""Seconds after which a session ends whose client takes no waiting messages: 1.4 MB at 0.1 Mbit/s take 120."""

STRANGER_BYTES = 2 * ENROL_LIMIT
"""Largest request in a session whose key is no member's: it can only ask for membership."""

NOBODY = ""
"""The account of bodies for an unproven session."""

_DROPPED = {
    marshalling.REFUSED: "revoked key",
    marshalling.OTHER_KEY: "handshake for another key",
    marshalling.BUSY: "too many connections",
    marshalling.NOT_NEXT: "not the next request, or altered",
}


class HttpSession:
    """The session of a client that shook hands: its proven key, its two channels, and its waiting messages."""

    def __init__(self, peer: Peer, ciphers: Ciphers, budget: Budget) -> None:
        self.peer = peer
        self.channels = {channel: Answerer(peer.route, channel, ciphers) for channel in (PUSH, PULL)}
        self.locks = {channel: asyncio.Lock() for channel in (PUSH, PULL)}
        self.mailbox = Mailbox(budget, peer.key)
        self.address = ""  # source of the newest request
        self.heard = self.pulled = asyncio.get_running_loop().time()


class XmlRpcListener(Listener):
    """An HTTP server whose requests end in one inbox."""

    def __init__(self) -> None:
        super().__init__()
        self._sessions: dict[bytes, HttpSession] = {}
        self._unproven: dict[bytes, HttpSession] = {}  # some of the above, oldest first
        self._arrived, self._room = Signal(), Signal()
        self._closed = False
        self._second, self._handshakes = 0, 0
        self._server: HttpServer | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    async def bind(self, uri: str, keys: Keys) -> str:
        address = parse(uri)
        self._keys, self._loop = keys, asyncio.get_running_loop()
        self._inbox = Inbox(self.budget)
        self._server = HttpServer(self)
        try:
            port = await self._server.start(await numeric(address), address.port)
        except OSError as error:
            raise AddressError(bind_error(address, error, "controller.http_port")) from None
        self._sweep()
        return str(Address("xmlrpc", address.host, port))

    # Requests

    def body_limit(self, path: str) -> int:
        """Return the largest body: small for a stranger, an envelope on the path of a member's session."""
        if path == marshalling.PATH:
            return marshalling.HANDSHAKE_BYTES
        session = self._session_of(path)
        if session is None:
            return 0
        return marshalling.limit(ENVELOPE_LIMIT if self.is_member(session.peer.key) else STRANGER_BYTES)

    def account(self, path: str) -> str:
        """Return the key of a session once it is proven: before, a session may be opened in another's name."""
        session = self._session_of(path)
        return NOBODY if session is None or session.peer.route in self._unproven else session.peer.key

    def _session_of(self, path: str) -> HttpSession | None:
        name = path.removeprefix(marshalling.PATH + "/")
        try:
            return self._sessions.get(bytes.fromhex(name)) if len(name) == 2 * SESSION_BYTES else None
        except ValueError:
            return None

    async def answer(self, path: str, body: bytes, prove: Callable[[str], str]) -> bytes:
        """Return the XML-RPC response to a call."""
        try:
            method, argument = marshalling.read_call(body)
            if path == marshalling.PATH and method == marshalling.OPEN:
                return marshalling.write_response(self._open(argument))
            session = self._session_of(path)
            if session is None or method != marshalling.EXCHANGE:
                raise WireError(f"there is no {method!a} at this address")
            return marshalling.write_response(await self._exchange(session, argument, prove))
        except marshalling.CallFault as fault:
            self._drop(_DROPPED[fault.code])
            return marshalling.write_fault(fault.code, str(fault))
        except WireError as error:
            self._drop("malformed request")
            return marshalling.write_fault(0, str(error))

    def _open(self, message: bytes) -> bytes:
        second = int(self._loop.time())
        self._handshakes = self._handshakes + 1 if second == self._second else 1
        self._second = second
        if self._handshakes > HANDSHAKES_A_SECOND:
            raise marshalling.CallFault(marshalling.BUSY, "too many connections: try again later")
        responder = Responder(self._keys)
        try:
            key, _ = responder.accept(message)
        except WireError as error:
            raise marshalling.CallFault(marshalling.OTHER_KEY, str(error)) from None
        if key in self.revoked:
            raise marshalling.CallFault(marshalling.REFUSED, "revoked key")
        route = secrets.token_bytes(SESSION_BYTES)
        reply, ciphers = responder.reply(route)
        if len(self._unproven) >= MAX_UNPROVEN:
            self._end(next(iter(self._unproven.values())))
        self._sessions[route] = self._unproven[route] = HttpSession(Peer(route, key), ciphers, self.budget)
        return reply

    async def _exchange(self, session: HttpSession, envelope: bytes, prove: Callable[[str], str]) -> bytes:
        """Carry out a request, or repeat the answer to the last one."""
        _, channel, _ = split(envelope)
        async with session.locks[channel]:
            answerer = session.channels[channel]
            try:
                content = answerer.open(envelope)
            except WireError as error:
                raise marshalling.CallFault(marshalling.NOT_NEXT, str(error)) from None
            if session.peer.key in self.revoked:
                self._end(session)
                raise marshalling.CallFault(marshalling.REFUSED, "revoked key")
            session.heard = self._loop.time()
            try:
                self._prove(session)
                session.address = prove(session.peer.key)
                if content is not None:
                    answerer.seal(await (self._push if channel == PUSH else self._pull)(session, content))
            except BaseException:
                self._end(session)  # this request will never have a reply
                raise
            session.heard = self._loop.time()
            return answerer.last_reply

    def _prove(self, session: HttpSession) -> None:
        """Record the first sealed request, at which the session displaces older ones of its key."""
        if self._unproven.pop(session.peer.route, None) is None:
            return
        self.budget.wake()  # its bodies are on its own account from now on
        proven = [one for one in self._sessions.values() if one.peer.route not in self._unproven]
        same = [one for one in proven if one.peer.key == session.peer.key]
        strangers = [one for one in proven if not self.is_member(one.peer.key)]
        for old in same[:-SESSIONS_A_KEY] + strangers[:-MAX_STRANGERS]:
            self._end(old)
        if len(self._sessions) - len(self._unproven) > MAX_SESSIONS:
            raise marshalling.CallFault(marshalling.BUSY, "too many connections: try again later")

    async def _push(self, session: HttpSession, content: bytes) -> bytes:
        """Accept a batch as soon as there is room; an empty one ends the session."""
        messages = unpack(content)
        if not messages:
            self._end(session)
            return TAKEN
        try:
            async with asyncio.timeout(ROOM_SECONDS):
                while not self._inbox.has_room(session.peer):
                    await self._room.wait()
        except TimeoutError:
            return AGAIN
        self._inbox.put(session.peer, messages)
        self._arrived.wake()
        return TAKEN

    async def _pull(self, session: HttpSession, content: bytes) -> bytes:
        """Return the available messages, waiting a while for some; an empty batch when none came."""
        session.pulled = self._loop.time()
        wanted = min(BATCH, WANTED.unpack(content)[0]) if len(content) == WANTED.size else BATCH
        mailbox = session.mailbox
        if not mailbox and session.peer.route in self._sessions:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await mailbox.filled.wait()
        batch: list[list[Buffer]] = []
        size = 0
        while mailbox and (not batch or size + packed_bytes(mailbox.first()) <= wanted):
            batch.append(mailbox.take())
            size += packed_bytes(batch[-1])
        return pack(batch)

    # Ends of sessions

    def _end(self, session: HttpSession) -> None:
        self._sessions.pop(session.peer.route, None)
        self._unproven.pop(session.peer.route, None)
        session.mailbox.clear()
        session.mailbox.filled.wake()

    def _sweep(self) -> None:
        """End sessions that are idle, or whose clients take none of their waiting messages."""
        try:
            now = self._loop.time()
            for session in list(self._sessions.values()):
                limit = PROVING_SECONDS if session.peer.route in self._unproven else IDLE_SECONDS
                if now - session.heard > limit or (session.mailbox and now - session.pulled > PULL_SECONDS):
                    self._end(session)
        finally:
            self._sweeper = self._loop.call_later(5.0, self._sweep)

    def revoke(self, key: str) -> None:
        super().revoke(key)
        for session in [one for one in self._sessions.values() if one.peer.key == key]:
            self._end(session)

    # The listener's interface

    async def receive_many(self, limit: int = BATCH_MESSAGES) -> list[Delivery]:
        await asyncio.sleep(0)  # yields to other tasks even if there is always something to read
        while not self._closed:
            if self.budget.spent:
                await self.budget.freed()
                continue
            taken = self._inbox.take(limit)
            batch = [received for received in taken if received.peer.key not in self.revoked]
            if len(batch) < len(taken):
                self._drop("revoked key")
            self._room.wake()
            if batch:
                return batch
            if not taken:
                await self._arrived.wait()
        return []

    def send(self, peer: Peer, frames: Sequence[Buffer]) -> bool:
        session = self._sessions.get(peer.route)
        if session is None or session.peer != peer or peer.key in self.revoked:
            return False
        if packed_bytes(frames) > CONTENT_LIMIT or not session.mailbox.put(frames):
            self._drop("queue of a slow peer is full")
            return False
        return True

    def address(self, peer: Peer) -> str:
        session = self._sessions.get(peer.route)
        return session.address if session is not None and session.peer == peer else ""

    async def close(self, linger: float = 0.0) -> None:
        if not self._closed and linger:
            until = self._loop.time() + linger
            while any(session.mailbox for session in self._sessions.values()) and self._loop.time() < until:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)  # time for the last sealed bytes to reach the socket
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for session in list(self._sessions.values()):
            self._end(session)
        self._arrived.wake()
        self._room.wake()
        self.budget.wake()
        if self._server is not None:
            await self._server.close()
