"""From where an address can be reached: a controller may send its workers to other addresses, but not into networks
that it could not reach itself."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from enum import Enum

from barnraise.transport.base import Address, parse


class AddressReach(Enum):
    """Where an address means the same machine: everywhere, in one network, on one line, on this machine."""

    INTERNET, NETWORK, LINE, MACHINE = range(4)


MAY_NAME = {
    AddressReach.INTERNET: {AddressReach.INTERNET},
    AddressReach.NETWORK: {AddressReach.INTERNET, AddressReach.NETWORK},
    AddressReach.LINE: {AddressReach.INTERNET, AddressReach.NETWORK, AddressReach.LINE},
    AddressReach.MACHINE: {AddressReach.INTERNET, AddressReach.NETWORK, AddressReach.MACHINE},
}
"""To which addresses a controller may send workers, by its own."""


def reach(address: str) -> AddressReach:
    """Of a numeric address.

    >>> [reach(each).name for each in ("93.184.216.34", "10.1.2.3", "100.64.0.1", "169.254.169.254", "::1", "0.0.0.0")]
    ['INTERNET', 'NETWORK', 'NETWORK', 'LINE', 'MACHINE', 'MACHINE']
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    if found.is_loopback or found.is_unspecified:
        return AddressReach.MACHINE
    if found.is_link_local or found.is_multicast:
        return AddressReach.LINE
    return AddressReach.INTERNET if found.is_global else AddressReach.NETWORK


async def addresses(host: str) -> list[str]:
    """The numeric addresses of a host, the preferred one first; [] when it has none, or nobody knows."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def own_reach(uri: str) -> AddressReach:
    """Of a controller's own addresses, the farthest; that of one which nobody knows counts as the internet's."""
    hosts = [parse(one).host for one in uri.split()]
    found = [reach(address) for host in hosts for address in await addresses(host)]
    return min(found, key=lambda each: each.value, default=AddressReach.INTERNET)


async def within(uri: str, may: Sequence[AddressReach] | set[AddressReach]) -> str | None:
    """`uri`, one address or several with spaces between, in numbers, so that no name can mean another machine later;
    None when one of them is outside of what it `may` be. "" where a name is not known now."""
    numeric = []
    for one in uri.split():
        place = parse(one)
        found = await addresses(place.host)
        if not found:
            return ""
        if any(reach(address) not in may for address in found):
            return None
        numeric.append(str(Address(place.scheme, found[0], place.port)))
    return " ".join(numeric)
