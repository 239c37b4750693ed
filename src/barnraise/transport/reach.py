"""The reach of addresses: a controller may redirect its workers only to networks that it could reach itself."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from enum import Enum

from barnraise.transport.base import Address, parse


class AddressReach(Enum):
    """The area in which an address means the same machine: everywhere, one network, one line, this machine."""

    INTERNET, NETWORK, LINE, MACHINE = range(4)


MAY_NAME = {
    AddressReach.INTERNET: {AddressReach.INTERNET},
    AddressReach.NETWORK: {AddressReach.INTERNET, AddressReach.NETWORK},
    AddressReach.LINE: {AddressReach.INTERNET, AddressReach.NETWORK, AddressReach.LINE},
    AddressReach.MACHINE: {AddressReach.INTERNET, AddressReach.NETWORK, AddressReach.MACHINE},
}
"""The reach of addresses to which a controller may send workers, by its own."""


_NAT64, _LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48")


def reach(address: str) -> AddressReach:
    """Return the reach of a numeric address.

    >>> [reach(each).name for each in ("93.184.216.34", "10.1.2.3", "100.64.0.1", "169.254.169.254", "::1", "0.0.0.0")]
    ['INTERNET', 'NETWORK', 'NETWORK', 'LINE', 'MACHINE', 'MACHINE']
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        found = _inner(found) or found
    if found.is_loopback or found.is_unspecified:
        return AddressReach.MACHINE
    if found.is_link_local or found.is_multicast:
        return AddressReach.LINE
    site = isinstance(found, ipaddress.IPv6Address) and (found.is_site_local or found in _LOCAL_NAT64)
    return AddressReach.INTERNET if found.is_global and not site else AddressReach.NETWORK


def _inner(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that an IPv6 address stands for: mapped, compatible, by 6to4 or by NAT64 (RFC 6052)."""
    low = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    compatible = int(address) >> 32 == 0 and int(address) > 1
    return address.ipv4_mapped or address.sixtofour or (low if compatible or address in _NAT64 else None)


async def addresses(host: str) -> list[str]:
    """Return the numeric addresses of a host, the preferred one first; [] when it has none or cannot be looked up."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def own_reach(uri: str) -> AddressReach:
    """Return the largest reach of a controller's own addresses; an unknown host counts as the internet's."""
    hosts = [parse(one).host for one in uri.split()]
    found = [reach(address) for host in hosts for address in await addresses(host)]
    return min(found, key=lambda each: each.value, default=AddressReach.INTERNET)


async def within(uri: str, may: Sequence[AddressReach] | set[AddressReach]) -> str | None:
    """Return `uri`, one or several addresses, in numeric form; None when one is outside of `may`.

    Numeric, so that a name cannot mean another machine later. "" where a name cannot be looked up now.
    """
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
