"""Limits on the TCP connections that libzmq accepts for a ROUTER.

libzmq accepts every connection, and has no limit on connections nor on the frames of an unfinished message. But its
monitor names the descriptor of each connection, and a TCP connection that is shut down from outside ends like any other
for it. So that never the wrong one is meant (descriptors are reused), a descriptor is first duplicated onto one of our
own, which takes no new one, and then its peer is checked.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import os
import socket as sockets
import struct
import sys
import termios
from collections.abc import Callable, Hashable
from typing import Any

import zmq
from zmq.utils.monitor import parse_monitor_message

from barnraise.transport.connection_limiter import ConnectionLimiter
from barnraise.transport.descriptors import for_connections
from barnraise.transport.zmq.loop_socket import LoopSocket
from barnraise.transport.zmq.options import RECEIVE_QUEUE
from barnraise.wire.messages import FRAME_LIMIT

MAX_CONNECTIONS = 4096
"""Open TCP connections, or what `descriptors` leaves if that is less."""

CONNECTIONS_A_KEY = 2
"""Connections of a key: a worker has one, and another while it dials again."""

LOOK_SECONDS = 0.25
"""Seconds between two checks of the connections' received bytes."""

UNREAD_BYTES = (RECEIVE_QUEUE + 4) * FRAME_LIMIT
"""Bytes that a connection may send without a whole message; libzmq stops reading a good one before that."""

UNPROVEN_BYTES = FRAME_LIMIT
"""The same before its first message."""

STRANGER_BYTES = 1 << 16
"""The same, and in all, for a connection whose key is no member's: it can only ask for membership."""

_TCP_INFO_BYTES, _RECEIVED_AT = 136, 128  # struct tcp_info of Linux: tcpi_bytes_received
_EVENTS = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED


class Connection:
    """One accepted TCP connection: its descriptor in libzmq, and its state."""

    __slots__ = ("at_message", "descriptor", "other_end", "read", "route")

    def __init__(self, descriptor: int, other_end: Any) -> None:
        self.descriptor, self.other_end = descriptor, other_end
        self.route = b""
        self.read = False  # whether a message came since the last check
        self.at_message = 0  # bytes it had sent by then


class ZmqConnections:
    """The connections of one ROUTER; `gone` is called with each route whose connection has ended."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        router: zmq.Socket[bytes],
        is_member: Callable[[str], bool],
        gone: Callable[[bytes], None],
        swept: Callable[[], None],
    ) -> None:
        limit = for_connections(MAX_CONNECTIONS)
        self.door = ConnectionLimiter(self._shut, is_member, limit=limit, a_key=CONNECTIONS_A_KEY)
        self._gone, self._swept = gone, swept
        self._router = router
        self._connections: dict[Hashable, Connection] = {}  # by descriptor
        self._routes: dict[bytes, Connection] = {}
        self._hand, self._rest = sockets.socket(), sockets.socket()
        router.monitor("inproc://door", _EVENTS)
        monitor = context.socket(zmq.PAIR)
        monitor.setsockopt(zmq.RCVHWM, 0)  # else libzmq's thread waits for this one when thousands come at once
        monitor.connect("inproc://door")
        self._monitor = LoopSocket(monitor, self._take_events)
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(LOOK_SECONDS, self._look)

    def __len__(self) -> int:
        return len(self._connections)

    def message(self, route: bytes, key: str, frame: zmq.Frame) -> bool:
        """Record a whole message from `route`, of which `frame` is one frame; False when the connection has ended.

        Frames name their connection.
        """
        connection = self._routes.get(route) or self._find(route, frame)
        if connection is None:
            return False
        connection.read = True
        self.door.prove(connection.descriptor, key)
        return True

    def is_of(self, route: bytes, key: str) -> bool:
        """Return whether the present connection of `route` has proven `key`.

        A client can choose the id that another had, so ended connections have to be known.
        """
        self._take_events()
        connection = self._routes.get(route)
        return connection is not None and self.door.key_of(connection.descriptor) == key

    def address(self, route: bytes) -> str:
        """Return the address of the connection that `route` leads to."""
        connection = self._routes.get(route)
        return str(connection.other_end[0]) if connection is not None else ""

    def send_away(self, route: bytes) -> None:
        """End the connection behind `route`."""
        if route in self._routes:
            self.door.send_away(self._routes[route].descriptor)

    def _find(self, route: bytes, frame: zmq.Frame) -> Connection | None:
        """Return the connection that a frame came by; None when it has ended."""
        try:
            descriptor = int(frame.get(zmq.SRCFD))
        except zmq.ZMQError:
            return None
        if descriptor not in self._connections:
            self._take_events()
        connection = self._connections.get(descriptor)
        if connection is not None:
            if self._routes.pop(connection.route, None) is not None:
                self._gone(connection.route)
            connection.route = route
            self._routes[route] = connection
        return connection

    def _take_events(self) -> None:
        while frames := self._monitor.try_receive(max_frames=2):
            event = parse_monitor_message([frame.bytes for frame in frames])
            descriptor = int(event["value"])
            if connection := self._connections.pop(descriptor, None):
                self.door.leave(descriptor)
                if self._routes.pop(connection.route, None) is not None:
                    self._gone(connection.route)
            if event["event"] == zmq.EVENT_ACCEPTED:
                self._accepted(descriptor)

    def _accepted(self, descriptor: int) -> None:
        other_end = self._take(descriptor)
        self._let_go()
        if other_end is not None:  # else it has ended, as the next events say
            self._connections[descriptor] = Connection(descriptor, other_end)
            self.door.enter(descriptor, other_end[0])

    def _shut(self, descriptor: Hashable) -> None:
        connection = self._connections[descriptor]
        with contextlib.suppress(OSError):
            if self._take(connection.descriptor) == connection.other_end:
                self._hand.shutdown(sockets.SHUT_RDWR)
        self._let_go()

    def _look(self) -> None:
        """End connections that send without end."""
        try:
            if sys.platform == "linux":
                for connection in list(self._connections.values()):
                    self._look_at(connection)
                self._let_go()
            self._swept()
        finally:
            self._timer = self._loop.call_later(LOOK_SECONDS, self._look)

    def _look_at(self, connection: Connection) -> None:
        if self._take(connection.descriptor) != connection.other_end:
            return
        try:
            sent = _num_read(self._hand)
        except OSError:
            return
        if connection.route and self.door.is_stranger(connection.descriptor):
            limit, connection.at_message = STRANGER_BYTES, 0
        else:
            limit = UNREAD_BYTES if connection.route else UNPROVEN_BYTES
            if connection.read:
                connection.read, connection.at_message = False, sent
        if sent - connection.at_message > limit:
            self.door.send_away(connection.descriptor)

    def _take(self, descriptor: int) -> Any:
        """Hold libzmq's connection by a descriptor of our own, and return its peer; None when it has none."""
        try:
            os.dup2(descriptor, self._hand.fileno(), inheritable=False)
            return self._hand.getpeername()
        except OSError:
            return None

    def _let_go(self) -> None:
        os.dup2(self._rest.fileno(), self._hand.fileno(), inheritable=False)

    def close(self) -> None:
        """Stop watching the connections.

        Called before the ROUTER is closed.
        """
        self._timer.cancel()
        if not self._router.closed:
            self._router.disable_monitor()
        self._monitor.close()
        self._hand.close()
        self._rest.close()


def _num_read(socket: sockets.socket) -> int:
    """Return the bytes that were read from a TCP socket so far."""
    info = socket.getsockopt(sockets.IPPROTO_TCP, sockets.TCP_INFO, _TCP_INFO_BYTES)
    (received,) = struct.unpack_from("=Q", info, _RECEIVED_AT)
    waiting = array.array("i", [0])
    fcntl.ioctl(socket.fileno(), termios.FIONREAD, waiting)
    return int(received) - waiting[0]
