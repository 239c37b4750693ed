"""One direction of an emulated access link, packet by packet: the time at which each leaves it, if at all."""

from __future__ import annotations

import random

from barnraise.transport.links.link import LinkDirection, Outages

SHORTEST_QUEUE = 256 << 10
"""Bytes that a queue holds at least; more where the rate times the link's round trip is more."""

LOST, DROPPED = -1.0, -2.0
"""Instead of a time: the packet was lost under way, or found the queue full."""


class Lane:
    """A queue, a line of a fixed rate, and a delay.

    Packets leave in the order of arrival.
    """

    __slots__ = ("_dark", "_free", "_last", "_limit", "_rng", "_way", "dropped", "lost", "num_bytes", "packets")

    def __init__(self, way: LinkDirection, round_trip: float, dark: Outages | None, rng: random.Random) -> None:
        self._way, self._dark, self._rng = way, dark, rng
        self._limit = max(SHORTEST_QUEUE, way.rate * round_trip) / way.rate
        self._free = self._last = 0.0
        self.num_bytes = self.packets = self.dropped = self.lost = 0

    def send(self, now: float, num_bytes: int) -> float:
        """Return when a packet that comes at `now` has passed; LOST or DROPPED.

        Counts it.
        """
        way, dark = self._way, self._dark
        clock = now if dark is None else dark.bright(now)
        start = self._free if self._free > clock else clock
        if start - clock > self._limit:
            self.dropped += 1
            return DROPPED
        self._free = start + num_bytes / way.rate
        self.num_bytes += num_bytes
        self.packets += 1
        if way.loss and self._rng.random() < way.loss:
            self.lost += 1
            return LOST
        out = (self._free if dark is None else dark.at(self._free)) + way.delay
        if way.jitter:
            out += self._rng.random() * way.jitter
        if out < self._last:
            return self._last
        self._last = out
        return out

    def twice(self) -> bool:
        """Return whether a packet, just sent, comes a second time."""
        return self._way.duplication > 0.0 and self._rng.random() < self._way.duplication
