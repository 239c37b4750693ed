"""Limits on the connections of a listener, and the choice of connections to close.

Pure: no socket and no clock. Any machine can connect. A guest is *unproven* until the first message under a key has
come, and a *stranger* until that key is a member's. Both have a limited number of places. Past it the oldest unproven
guest of the address that has most of them is closed, and the oldest stranger. So a peer that opens thousands of
connections displaces its own, and members stay.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Hashable

MAX_UNPROVEN = 512
"""Guests without a proven key, or a quarter of all places if that is less; half of them from one address."""

MAX_STRANGERS = 256
"""Guests whose key is no member's, or a quarter of all places if that is less."""


class CountedConnection:
    """A connection as the limiter counts it."""

    __slots__ = ("address", "key")

    def __init__(self, address: str) -> None:
        self.address, self.key = address, ""


class ConnectionLimiter:
    """Counts guests, and calls `shut` for each that has to be closed.

    `leave` tells it of every other end. `limit` are the places for all, `a_key` those for one key: a new connection of
    a key displaces its oldest.
    """

    def __init__(
        self,
        shut: Callable[[Hashable], None],
        is_member: Callable[[str], bool],
        *,
        limit: int,
        a_key: int,
    ) -> None:
        self._shut, self._is_member = shut, is_member
        self.limit, self.a_key = limit, a_key
        self._guests: dict[Hashable, CountedConnection] = {}
        self._unproven: dict[str, dict[Hashable, None]] = {}  # by address, the oldest first
        self._num_unproven = 0
        self._strangers: dict[Hashable, None] = {}  # the oldest first
        self._keys: dict[str, dict[Hashable, None]] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._guests)

    def __contains__(self, who: Hashable) -> bool:
        return who in self._guests

    def is_stranger(self, who: Hashable) -> bool:
        """Return whether this guest has not proven a member's key."""
        guest = self._guests.get(who)
        return guest is None or not guest.key or not self._is_member(guest.key)

    def key_of(self, who: Hashable) -> str:
        """Return the key that this guest proved; "" when none."""
        guest = self._guests.get(who)
        return guest.key if guest is not None else ""

    def enter(self, who: Hashable, address: str) -> None:
        """Count a connection that was accepted."""
        self.leave(who)
        place = place_of(address)
        self._guests[who] = CountedConnection(place)
        self._unproven.setdefault(place, {})[who] = None
        self._num_unproven += 1
        most = max(4, min(MAX_UNPROVEN, self.limit // 4))
        if len(self._unproven[place]) > most // 2:
            self.send_away(next(iter(self._unproven[place])))
        if self._num_unproven > most or len(self._guests) > self.limit:
            self.send_away(self._oldest_of_the_most())

    def prove(self, who: Hashable, key: str) -> None:
        """Record a message under `key` from this guest."""
        guest = self._guests.get(who)
        if guest is None or guest.key == key:
            return
        self._forget(who, guest)
        guest.key = key
        same = self._keys.setdefault(key, {})
        same[who] = None
        if len(same) > self.a_key:
            self.send_away(next(iter(same)))
        if not self._is_member(key):
            self._strangers[who] = None
            oldest = self._oldest_stranger()
            if len(self._strangers) > max(4, min(MAX_STRANGERS, self.limit // 4)):
                self.send_away(oldest)

    def leave(self, who: Hashable) -> None:
        """Forget a connection that has ended."""
        guest = self._guests.pop(who, None)
        if guest is not None:
            self._forget(who, guest)

    def send_away(self, who: Hashable) -> None:
        """Close this guest's connection."""
        if who in self._guests:
            self.leave(who)
            self._shut(who)

    def _oldest_of_the_most(self) -> Hashable:
        most = max(self._unproven, key=lambda address: len(self._unproven[address]))
        return next(iter(self._unproven[most]))

    def _oldest_stranger(self) -> Hashable:
        """Return the oldest stranger that is still no member; None when there is none."""
        while self._strangers:
            who = next(iter(self._strangers))
            if self.is_stranger(who):
                return who
            del self._strangers[who]
        return None

    def _forget(self, who: Hashable, guest: CountedConnection) -> None:
        """Take a guest out of the lists that it is in because of its key."""
        self._strangers.pop(who, None)
        group, name = (self._keys, guest.key) if guest.key else (self._unproven, guest.address)
        self._num_unproven -= not guest.key
        del group[name][who]
        if not group[name]:
            del group[name]


def network_of(address: str) -> str:
    """Return the network whose addresses count together: IPv4 /24 or IPv6 /64; "" for other addresses.

    >>> network_of("10.1.2.3"), network_of("2001:db8::1"), network_of("::ffff:10.1.2.3"), network_of("")
    ('10.1.2.0/24', '2001:db8::/64', '10.1.2.0/24', '')
    """
    place = place_of(address)
    try:
        return place if "/" in place else str(ipaddress.IPv4Network((place, 24), strict=False))
    except ValueError:
        return ""


def place_of(address: str) -> str:
    """Return the unit that counts as one address: an IPv4 address, or the /64 network of an IPv6 one.

    >>> place_of("2001:db8::1") == place_of("2001:db8::2"), place_of("::ffff:10.0.0.1")
    (True, '10.0.0.1')
    """
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        return str(found.ipv4_mapped or ipaddress.IPv6Network((found, 64), strict=False))
    return str(found)
