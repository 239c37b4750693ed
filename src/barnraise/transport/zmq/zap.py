"""The handler of ZMQ's authentication protocol (ZAP, https://rfc.zeromq.org/spec/27/).

libzmq asks it once for each connection, when the client has proven that it holds the secret half of its key. Any key
that is not revoked may connect, and is passed on as the `User-Id` of every message, which the listener uses. pyzmq's
authenticator is not used: a mistake in its callback ends it, and with it the admission of all peers.
"""

from __future__ import annotations

from collections.abc import Collection

import zmq
from zmq.utils import z85

from barnraise.transport.zmq.loop_socket import LoopSocket

DOMAIN = b"barnraise"
_ENDPOINT = "inproc://zeromq.zap.01"


class ZapHandler:
    """Answers the ZAP requests of all sockets of `context`; `revoked` may change at any time."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], revoked: Collection[str]) -> None:
        self.revoked = revoked
        socket = context.socket(zmq.ROUTER)
        socket.bind(_ENDPOINT)
        self._socket = LoopSocket(socket, self._answer_all)

    def _answer_all(self) -> None:
        while frames := self._socket.try_receive(max_frames=16):
            reply = self.answer([frame.bytes for frame in frames])
            if reply is not None:
                self._socket.try_send(reply)

    def answer(self, request: list[bytes]) -> list[bytes] | None:
        """Return the reply to a request, or None for a malformed one; never raises."""
        if len(request) < 4 or request[1]:
            return None
        client, _, version, request_id, *rest = request
        domain, mechanism, key = (rest[0], rest[3], rest[4]) if len(rest) == 5 else (b"", b"", b"")
        if version != b"1.0" or domain != DOMAIN or mechanism != b"CURVE" or len(key) != 32:
            status, text, user = b"400", b"only CURVE is spoken here", b""
        else:
            user = z85.encode(key)
            refused = user.decode("ascii") in self.revoked
            status, text, user = (b"400", b"key revoked", b"") if refused else (b"200", b"OK", user)
        return [client, b"", b"1.0", request_id, status, text, user, b""]

    def close(self) -> None:
        self._socket.close()
