"""The ports of a standby: taken when it starts, so that workers know them, and silent while it follows.

A worker that dials one meanwhile is refused at once, and tries another address.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

from barnraise.core.errors import AddressError
from barnraise.transport import Invite
from barnraise.transport.base import Address, bind_error


class Ports:
    """One port for each transport that the controller has."""

    def __init__(self, schemes: list[str], host: str, sockets: list[socket.socket]) -> None:
        self._host, self._sockets = host, sockets
        numbers = [each.getsockname()[1] for each in sockets]
        self.uri = " ".join(str(Address(*way)) for way in zip(schemes, [host] * len(schemes), numbers, strict=True))
        self.where: tuple[str, int, int | None] = host, numbers[0], numbers[1] if len(numbers) > 1 else None

    @classmethod
    @contextlib.contextmanager
    def reserve(cls, invite: Invite, host: str, port: int, http_port: int) -> Iterator[Ports]:
        """Take ports on `host`, or on the address from which the controller is reached.

        Raises AddressError.
        """
        schemes = [urlsplit(one).scheme for one in invite.uri.split()]
        host = host or _own_address(invite)
        sockets: list[socket.socket] = []
        try:
            for number in (port, http_port)[: len(schemes)]:
                sockets.append(_reserved(host, number))
            yield cls(schemes, host, sockets)
        finally:
            for each in sockets:
                each.close()

    def release(self) -> None:
        """Free the ports, so that a listener can take them."""
        for each in self._sockets:
            each.close()

    def take(self) -> None:
        """Take the same ports again, after `release`.

        Raises AddressError.
        """
        host, *numbers = self.where
        for place, number in enumerate(number for number in numbers if number is not None):
            self._sockets[place] = _reserved(host, number)


def _reserved(host: str, port: int) -> socket.socket:
    """Return a socket that is bound and does not listen."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        reserved = socket.socket(family, kind, protocol)
        try:
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind(address)
        except OSError:
            reserved.close()
            raise
        return reserved
    except OSError as error:
        raise AddressError(bind_error(Address("tcp", host, port), error, "--port")) from None


def _own_address(invite: Invite) -> str:
    """Return the address of this machine that packets to the controller come from."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(invite.host, invite.port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)  # sends nothing
            return str(probe.getsockname()[0])
    except OSError as error:
        raise AddressError(
            f"{invite.host} cannot be reached from here ({error.strerror or error}): check this machine's network, or "
            "give this machine's own address with --host"
        ) from None
