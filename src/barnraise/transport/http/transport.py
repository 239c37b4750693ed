"""XML-RPC over HTTP, for networks that allow only HTTP: slower than ZMQ, with the same guarantees.

    POST /RPC2             barnraise.open(handshake) -> handshake          at most 4 KiB: all that a stranger may send
    POST /RPC2/SESSION     barnraise.exchange(envelope) -> sealed reply    one batch up, or one batch down

The worker dials out only. Two requests are under way at a time: one pushes a batch of messages, the other waits for up
to POLL_SECONDS for messages. HTTP, proxies on the way and XML carry sealed bytes and are not trusted: the proof of the
sender's key, order and "no message twice" are those of `noise` and `envelope`.

Not covered: TLS to the controller; a proxy that wants a login other than Basic; hiding sizes and times.
"""

from __future__ import annotations

from barnraise.transport.base import Connection, Listener, Transport
from barnraise.transport.http.connection import XmlRpcConnection
from barnraise.transport.http.listener import XmlRpcListener


class XmlRpcTransport(Transport):
    """Listeners and connections for `xmlrpc://host:port`."""

    def listener(self) -> Listener:
        return XmlRpcListener()

    def connection(self) -> Connection:
        return XmlRpcConnection()
