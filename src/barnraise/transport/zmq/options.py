"""Options of both ends' ZMQ contexts and sockets."""

from __future__ import annotations

import asyncio
import ctypes
import secrets

import zmq

from barnraise.transport.identity import Keys
from barnraise.wire.messages import FRAME_LIMIT, HEADER_LIMIT

Context = zmq.Context[zmq.Socket[bytes]]

DEALER_QUEUE = 4
"""Messages that a worker hands to libzmq ahead of the network: the queue that a heartbeat may wait for."""

PEER_QUEUE = 32
"""Messages that libzmq keeps for one peer of the controller."""

RECEIVE_QUEUE = 8
"""Messages that libzmq reads ahead from one connection."""

HANDSHAKE_SECONDS = 30.0

_BOTH = {
    zmq.MAXMSGSIZE: max(FRAME_LIMIT, HEADER_LIMIT) + 1024,  # the size of a frame on the wire: CURVE adds a little
    zmq.RCVHWM: RECEIVE_QUEUE,
    zmq.HANDSHAKE_IVL: round(1000 * HANDSHAKE_SECONDS),
    zmq.TCP_KEEPALIVE: 1,
    zmq.TCP_KEEPALIVE_IDLE: 30,
    zmq.TCP_KEEPALIVE_INTVL: 10,
    zmq.TCP_KEEPALIVE_CNT: 3,
    zmq.TCP_MAXRT: 60_000,
}
_LISTENER = {
    zmq.SNDHWM: PEER_QUEUE,
    zmq.ROUTER_MANDATORY: 1,  # a full queue or a disconnected peer is an error, not a silent loss
    zmq.BACKLOG: 1024,
    zmq.CURVE_SERVER: 1,
    zmq.ZAP_ENFORCE_DOMAIN: 1,
}
# Without ZMTP's heartbeats: libzmq 4.3.5 aborts the process when one is due after a connection broke whose reader had
# too much to read (libzmq's issue 4364). The connection itself takes care not to wait forever.
_CONNECTION = {
    zmq.SNDHWM: DEALER_QUEUE,
    zmq.CONNECT_TIMEOUT: 10_000,
    zmq.RECONNECT_IVL: 100,
    zmq.RECONNECT_IVL_MAX: 2_000,
}


def new_context(io_threads: int) -> Context:
    """Create a context of one's own, so that closing it ends its threads and no other sockets."""
    context: Context = zmq.Context(io_threads)
    context.set(zmq.BLOCKY, 0)
    return context


async def terminate(context: Context) -> None:
    """Wait until libzmq has finished with the context, whose sockets are closed.

    That continues although the caller is cancelled: else the garbage collector would wait for it, and with it the event
    loop.
    """
    await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, context.term))


def new_router(context: Context, keys: Keys, domain: bytes, *, ipv6: bool) -> zmq.Socket[bytes]:
    """Create the controller's socket with all limits, not bound yet; `domain` is that of the ZAP handler.

    libzmq counts routing ids up from C's rand(), which is not seeded: they are the same in each process. It aborts
    where a client has chosen the next id, so no client may know the count.
    """
    ctypes.CDLL(None).srand(secrets.randbits(32))
    socket = _new_socket(context, zmq.ROUTER, _BOTH | _LISTENER | {zmq.IPV6: int(ipv6)})
    socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret.encode())
    socket.setsockopt(zmq.ZAP_DOMAIN, domain)
    return socket


def new_dealer(
    context: Context, keys: Keys, server_key: str, *, ipv6: bool, kind: int = zmq.DEALER
) -> zmq.Socket[bytes]:
    """Create a worker's socket with all limits, not connected yet.

    `kind` is REQ for a client that asks and waits.
    """
    socket = _new_socket(context, kind, _BOTH | _CONNECTION | {zmq.IPV6: int(ipv6)})
    socket.setsockopt(zmq.CURVE_SECRETKEY, keys.secret.encode())
    socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.public.encode())
    socket.setsockopt(zmq.CURVE_SERVERKEY, server_key.encode())
    return socket


def _new_socket(context: Context, kind: int, options: dict[zmq.SocketOption, int]) -> zmq.Socket[bytes]:
    socket = context.socket(kind)
    for option, value in options.items():
        socket.setsockopt(option, value)
    return socket


def endpoint(host: str, port: int) -> str:
    """Return libzmq's form of an address."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"
