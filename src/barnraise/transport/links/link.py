"""A model of a network link: rate, delay, jitter, loss, duplication, brown-outs.

Pure: no socket, no clock. A `Link` has a connection's parameters, a `LinkState` computes how long each message takes
over one direction of it. Simulated and live runs use the same two. The link carries a reliable stream, as TCP does:
lost packets are sent again, so that loss costs time and rate and never a message. In particular

- *bulk* messages (with a raw frame) pass one after the other, at the link's rate or, where that is less, the rate of
  TCP under loss p and round trip R: 1.22 * MSS / (R * sqrt(p)) (Mathis, Semke, Mahdavi & Ott 1997).
- *small* messages (a single frame) interleave with bulk, as frames are cut small enough for that. Each loss costs one
  a retransmission timeout, which doubles while losses continue.
- Jitter is drawn evenly for each message and reorders nothing of one class; bulk never overtakes an earlier small one.
- During a brown-out nothing passes; waiting messages pass afterwards.
- Duplication delivers a small message twice in a row. TCP would not: this models senders that repeat messages.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

SEGMENT = 1448
"""Bytes of payload in a full TCP segment on Ethernet (MSS)."""

MATHIS = 1.22
"""Constant of the Mathis formula."""

SHORTEST_TIMEOUT, LONGEST_TIMEOUT = 0.2, 60.0
"""Bounds of a retransmission timeout beyond the round trip, in seconds: the least, and the most after doubling."""


@dataclass(frozen=True, slots=True)
class LinkDirection:
    """One direction of a link: bytes a second; seconds of delay, and of jitter on top (uniform from 0).

    `loss` is the probability that a packet is lost, `duplication` that a small message (in a packet emulator: a packet)
    arrives twice.
    """

    rate: float
    delay: float
    jitter: float = 0.0
    loss: float = 0.0
    duplication: float = 0.0


@dataclass(frozen=True, slots=True)
class BrownOuts:
    """Outages: every `every` seconds nothing passes for `lasting` seconds; the start of the first is random."""

    every: float
    lasting: float


@dataclass(frozen=True, slots=True)
class Link:
    """One node's connection, seen from the node.

    `small_up` and `small_down` are for small messages, where they behave differently; their rate is not used, as there
    is but one line.
    """

    up: LinkDirection
    down: LinkDirection
    brown_outs: BrownOuts | None = None
    small_up: LinkDirection | None = None
    small_down: LinkDirection | None = None

    @property
    def round_trip(self) -> float:
        """Return the seconds there and back, mean jitter included."""
        return self.up.delay + self.down.delay + (self.up.jitter + self.down.jitter) / 2

    @property
    def draws(self) -> bool:
        """Whether chance decides anything of it."""
        ways = self.up, self.down, self.small_up or self.up, self.small_down or self.down
        return self.brown_outs is not None or any(way.jitter or way.loss or way.duplication for way in ways)

    def throughput(self, way: LinkDirection) -> float:
        """Return the bytes a second that a reliable stream reaches on `way`, which is `up` or `down` of this link."""
        if way.loss == 0.0 or self.round_trip == 0.0:
            return way.rate
        return min(way.rate, MATHIS * SEGMENT / (self.round_trip * math.sqrt(way.loss)))

    def changed(
        self,
        *,
        up: float | None = None,
        down: float | None = None,
        delay: float | None = None,
        jitter: float | None = None,
        loss: float | None = None,
        duplication: float | None = None,
        brown_outs: BrownOuts | None = None,
    ) -> Link:
        """Return the link with other rates (`up`, `down`), and both ways with another delay and so on."""
        shared = {"delay": delay, "jitter": jitter, "loss": loss, "duplication": duplication}
        ways = [
            replace(way, **{name: value for name, value in {"rate": rate, **shared}.items() if value is not None})
            for way, rate in ((self.up, up), (self.down, down))
        ]
        return replace(self, up=ways[0], down=ways[1], brown_outs=brown_outs or self.brown_outs)

    def states(self, rng: random.Random) -> tuple[LinkState, LinkState]:
        """Return both directions (up, down) of one connection over this link; randomness comes from `rng`."""
        dark = Outages(self.brown_outs, rng) if self.brown_outs else None
        timeout = self.round_trip + max(SHORTEST_TIMEOUT, 2 * (self.up.jitter + self.down.jitter))
        up = LinkState(self.up, self.small_up or self.up, self.throughput(self.up), timeout, dark, rng)
        return up, LinkState(self.down, self.small_down or self.down, self.throughput(self.down), timeout, dark, rng)


class Outages:
    """The brown-outs of one link, on its own clock.

    Work is done in bright time, which stands still during a brown-out.

    >>> outages = Outages(BrownOuts(10.0, 2.0), random.Random(0))
    >>> outages.first = 8.0
    >>> outages.bright(7.0), outages.bright(9.0), outages.at(outages.bright(7.0) + 3.0)
    (7.0, 8.0, 12.0)
    """

    def __init__(self, brown_outs: BrownOuts, rng: random.Random) -> None:
        self.every, self.lasting = brown_outs.every, brown_outs.lasting
        self.first = rng.uniform(0.0, self.every - self.lasting)  # the first begins here

    def bright(self, now: float) -> float:
        """Return the bright seconds until `now`."""
        over, into = divmod(now - self.first, self.every)
        return now - (over * self.lasting + min(into, self.lasting)) if over >= 0 else now

    def at(self, bright: float) -> float:
        """Return when `bright` bright seconds have passed."""
        if bright <= self.first:
            return bright
        return bright + math.ceil((bright - self.first) / (self.every - self.lasting)) * self.lasting

    def end(self, start: float, work: float) -> float:
        """Return when `work` seconds of sending end that begin at `start` and pause during brown-outs."""
        return self.at(self.bright(start) + work)

    def dark(self, now: float) -> bool:
        """Return whether nothing passes at `now`."""
        return now >= self.first and (now - self.first) % self.every < self.lasting


class LinkState:
    """One direction of one connection, which computes each message's arrival.

    `free` is when the next bulk message may begin. Times are seconds on a monotonic clock of the caller's choice; the
    same calls and seed give the same answers.
    """

    __slots__ = (
        "_dark",
        "_last_bulk",
        "_last_small",
        "_rng",
        "_seconds_a_byte",
        "_small",
        "_small_free",
        "_small_seconds",
        "_timeout",
        "_way",
        "free",
        "steady",
    )

    def __init__(
        self,
        way: LinkDirection,
        small: LinkDirection,
        throughput: float,
        timeout: float,
        dark: Outages | None,
        rng: random.Random,
    ) -> None:
        self._way, self._small, self._timeout, self._dark, self._rng = way, small, timeout, dark, rng
        self._seconds_a_byte, self._small_seconds = 1.0 / throughput, 1.0 / way.rate
        self.steady = dark is None and small.jitter == small.loss == small.duplication == 0.0
        """Whether all small messages take the same time."""
        self.reset(0.0)

    def reset(self, now: float) -> None:
        """Start a new connection: nothing is under way any more."""
        self.free = self._small_free = now
        self._last_bulk = self._last_small = now

    def send(self, now: float, num_bytes: int, *, small: bool) -> tuple[float, ...]:
        """Return when a message that is handed over at `now` arrives; two times where it is duplicated."""
        if not small:
            return (self.bulk(now, num_bytes),)
        arrival = self.small(now, num_bytes)
        return (arrival, arrival) if self.twice() else (arrival,)

    def bulk(self, now: float, num_bytes: int) -> float:
        """Return when a bulk message arrives."""
        way = self._way
        start = self.free if self.free > now else now
        work = num_bytes * self._seconds_a_byte
        self.free = start + work if self._dark is None else self._dark.end(start, work)
        arrival = self.free + way.delay
        if way.jitter:
            arrival += self._rng.uniform(0.0, way.jitter)
        if arrival < self._last_bulk:
            arrival = self._last_bulk
        if arrival < self._last_small:
            arrival = self._last_small
        self._last_bulk = arrival
        return arrival

    def small(self, now: float, num_bytes: int) -> float:
        """Return when a small message arrives; bulk that is sent later waits for its bytes."""
        small = self._small
        work = num_bytes * self._small_seconds
        start = self._small_free if self._small_free > now else now
        end = start + work if self._dark is None else self._dark.end(start, work)
        self._small_free = end
        self.free = (self.free if self.free > now else now) + work
        arrival = end + small.delay
        if not self.steady:
            if small.jitter:
                arrival += self._rng.uniform(0.0, small.jitter)
            if small.loss:
                arrival += self._sent_again(num_bytes)
            if arrival < self._last_small:
                arrival = self._last_small
        self._last_small = arrival
        return arrival

    def lone(self, num_bytes: int) -> float:
        """Return the seconds that a small message takes on a steady, idle link."""
        return num_bytes * self._small_seconds + self._small.delay

    def twice(self) -> bool:
        """Return whether a small message, just sent, is delivered a second time."""
        return self._small.duplication > 0.0 and self._rng.random() < self._small.duplication

    def _sent_again(self, num_bytes: int) -> float:
        """Return the seconds of retransmission timeouts until every packet of a small message has passed."""
        loss, rng = self._small.loss, self._rng
        waited, timeout = 0.0, self._timeout
        chance = loss if num_bytes <= SEGMENT else 1.0 - (1.0 - loss) ** math.ceil(num_bytes / SEGMENT)
        while rng.random() < chance:
            waited += timeout
            timeout, chance = min(2 * timeout, LONGEST_TIMEOUT), loss
        return waited
