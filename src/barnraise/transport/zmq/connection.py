"""A worker's end of ZMQ: one DEALER that dials, and dials again.

libzmq reconnects by itself when the network or the controller disappears. It stops when another program answers on the
port, or the controller refuses the key: then this connection dials again, after a pause. It also does so where a
connection stands and nothing comes: after corrupted bytes libzmq may wait for a frame without end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

import zmq
from zmq.utils.monitor import parse_monitor_message

from barnraise.core.errors import AddressError
from barnraise.transport.base import BATCH_BYTES, BATCH_MESSAGES, Connection, parse
from barnraise.transport.identity import Keys
from barnraise.transport.names import numeric
from barnraise.transport.zmq.loop_socket import LoopSocket, contents
from barnraise.transport.zmq.options import endpoint, new_context, new_dealer, terminate
from barnraise.wire.frames import Buffer, num_bytes

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds before dialling again where libzmq stopped; the pause doubles until a handshake succeeds."""

FIRST_SILENCE, LONGEST_SILENCE = 5.0, 60.0
"""Seconds without an answer after which a standing connection is dialled again.

They are twice the longest recent wait, which a slow link may need for a frame, within these bounds.
"""

FORGETTING = 0.99
"""Factor of that wait after each answer."""

LOOK_SECONDS = 1.0

_EVENTS = (
    zmq.EVENT_CONNECTED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CONNECT_RETRIED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_NO_ANSWER = (
    "nothing answers at {where}: check that the controller runs (barnraise status RUN_DIR there), that its host and "
    "port can be reached from this machine, and that no firewall is in between"
)
_NOT_ONE = "what answers at {where} is not a barnraise controller: ask the host for a new invite"
_TROUBLE: dict[int, str] = {
    zmq.EVENT_CONNECTED: _NOT_ONE,
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: _NOT_ONE,
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "the controller at {where} hangs up: its key is not the one in the invite, "
    "which is perhaps of an older run; ask the host for a new one",
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "the controller at {where} refuses this machine's key, which was revoked: ask the "
    "host",
}


class ZmqConnection(Connection):
    """A DEALER socket, its monitor, and the pauses between its attempts."""

    def __init__(self, io_threads: int) -> None:
        super().__init__()
        self._io_threads = io_threads
        self._closed = False
        self._unread: deque[list[Buffer]] = deque()
        self._single, self._bulk = asyncio.Lock(), asyncio.Lock()
        self._trouble = 0
        self._pause = FIRST_PAUSE
        self._redial_timer: asyncio.TimerHandle | None = None
        self._num_dials = 0
        self._asked_at = 0.0  # since when an answer is awaited; 0 when none is
        self._silence = FIRST_SILENCE
        self._look_timer: asyncio.TimerHandle | None = None

    async def open(self, uri: str, server_key: str, keys: Keys) -> None:
        self._address = parse(uri)
        self._server_key, self._keys = server_key, keys
        try:
            self._ipv6 = ":" in await numeric(self._address)
        except AddressError:
            self._ipv6 = False  # the name may get its address later: libzmq looks it up at each attempt
        self._context = new_context(self._io_threads)
        self._dial()
        self._look()

    def _look(self) -> None:
        """Dial again where no answer comes."""
        loop = asyncio.get_running_loop()
        if self.connected and self._asked_at and loop.time() - self._asked_at > self._silence:
            self._silence = min(2 * self._silence, LONGEST_SILENCE)
            self.redial()
        self._look_timer = loop.call_later(LOOK_SECONDS, self._look)

    def _answered(self) -> None:
        """Record that a whole message has come."""
        if self._asked_at:
            longest = max(FIRST_SILENCE, 2 * (asyncio.get_running_loop().time() - self._asked_at))
            self._silence = min(max(longest, FORGETTING * self._silence), LONGEST_SILENCE)
            self._asked_at = 0.0

    def _dial(self) -> None:
        socket = new_dealer(self._context, self._keys, self._server_key, ipv6=self._ipv6)
        self._num_dials += 1
        monitor = socket.get_monitor_socket(_EVENTS, f"inproc://monitor-{self._num_dials}")
        self._socket = LoopSocket(socket)
        self._monitor = LoopSocket(monitor, self._on_events)
        socket.connect(endpoint(self._address.host, self._address.port))

    def _on_events(self) -> None:
        while frames := self._monitor.try_receive(max_frames=2):
            event = parse_monitor_message([frame.bytes for frame in frames])["event"]
            if event == zmq.EVENT_DISCONNECTED:
                self.connected = False
                self._plan_redial()
            elif event == zmq.EVENT_CONNECT_RETRIED:
                self._cancel_redial()  # libzmq continues by itself
                self.refused = True
            elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._trouble, self._pause = 0, FIRST_PAUSE
                self.connected, self.refused = True, False
                self._asked_at = self._asked_at and asyncio.get_running_loop().time()
                self.num_connects += 1
                self._changed.wake()
            else:
                self._trouble = event

    def _plan_redial(self) -> None:
        self._cancel_redial()
        self._redial_timer = asyncio.get_running_loop().call_later(self._pause, self.redial)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def _cancel_redial(self) -> None:
        if self._redial_timer is not None:
            self._redial_timer.cancel()
            self._redial_timer = None

    def redial(self) -> None:
        if self._closed:
            return
        self._cancel_redial()
        while frames := self._socket.try_receive(max_frames=3):
            self._unread.append(contents(frames))
        self._hang_up(0.0)
        self._dial()

    def _hang_up(self, linger: float) -> None:
        self.connected = False
        self._socket.socket.disable_monitor()
        self._monitor.close()
        self._socket.close(linger)

    async def send(self, frames: Sequence[Buffer]) -> bool:
        single = len(frames) == 1
        async with self._single if single else self._bulk:
            while not self._closed:
                while not single and self._single.locked():
                    async with self._single:
                        pass  # small messages first
                if self._closed or self._socket.try_send(frames):
                    self._asked_at = self._asked_at or asyncio.get_running_loop().time()
                    break
                await self._socket.wait_writable()
        return not self._closed

    async def receive_many(self, limit: int = BATCH_MESSAGES) -> list[list[Buffer]]:
        await asyncio.sleep(0)  # yields to other tasks even if there is always something to read
        while not self._closed:
            batch = self._read(limit)
            if batch:
                return batch
            await self._socket.wait_readable()
        return []

    def _read(self, limit: int) -> list[list[Buffer]]:
        batch: list[list[Buffer]] = []
        size = 0
        while len(batch) < limit and size < BATCH_BYTES:
            if self._unread:
                message = self._unread.popleft()
            elif frames := self._socket.try_receive(max_frames=3):
                message = contents(frames)
                self._answered()
            else:
                break
            batch.append(message)
            size += sum(map(num_bytes, message))
        return batch

    async def _diagnosis(self) -> str:
        await numeric(self._address)  # raises the error when the name has no address
        where = f"{self._address.host}, port {self._address.port}"
        return _TROUBLE.get(self._trouble, _NO_ANSWER).format(where=where)

    async def close(self, linger: float = 0.0) -> None:
        already, self._closed = self._closed, True
        self._cancel_redial()
        if self._look_timer is not None:
            self._look_timer.cancel()
        if self._num_dials and not already:
            self._hang_up(linger)
            await terminate(self._context)
