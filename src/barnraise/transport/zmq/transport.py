"""ZMQ over TCP: a ROUTER for the controller, a DEALER for each worker, CURVE between them.

The controller's key is in the invite, the worker's key is proven in the handshake and comes with each message as
`User-Id`; the routing id, which a client may choose, is not trusted. Sizes are limited before memory is taken for a
frame (MAXMSGSIZE), queues by number of messages (HWM); connections, and unfinished messages, by `zmq.connections`;
unread answers by `zmq.outgoing`.

Not covered: off Linux, libzmq keeps an unfinished multi-part message for as long as its sender continues. A machine
that knows the controller's public key (from an invite) can so fill its memory there.
"""

from __future__ import annotations

from barnraise.transport.base import Connection, Listener, Transport
from barnraise.transport.zmq.connection import ZmqConnection
from barnraise.transport.zmq.listener import ZmqListener


class ZmqTransport(Transport):
    """Listeners and connections for `zmq://host:port`; `io_threads` encrypt and move the bytes of each."""

    def __init__(self, io_threads: int = 1) -> None:
        self.io_threads = io_threads

    def listener(self) -> Listener:
        return ZmqListener(self.io_threads)

    def connection(self) -> Connection:
        return ZmqConnection(self.io_threads)
