"""Lookup of host names without blocking the event loop."""

from __future__ import annotations

import asyncio
import socket

from barnraise.core.errors import AddressError
from barnraise.transport.base import Address


async def numeric(address: Address) -> str:
    """Return the IP address of `address.host`, IPv4 where there is a choice; AddressError when the name has none."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise AddressError(
            f"host name '{address.host}' has no address ({error}): check its spelling and this machine's DNS"
        ) from None
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return str(found[0][4][0])
