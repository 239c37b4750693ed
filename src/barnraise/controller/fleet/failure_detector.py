"""How long the other end of a link may be silent: the phi accrual failure detector, one for each link.

N. Hayashibara, X. Defago, R. Yared and T. Katayama, "The phi accrual failure detector", SRDS 2004. Suspicion is no yes
or no, but a number that grows with the silence: from the times between frames so far follows how likely it is that the
next one comes still later,

    phi(t) = -log10 P_later(t),    P_later(t) = 1/2 erfc((t - mean) / (sqrt(2) * deviation)).

Frames come in bursts, and heartbeats are their regular part, so what is learned of is the longest gap in each
heartbeat's time, and of that by how much it is longer than a heartbeat: the mean follows when heartbeats become rarer,
and frames that come before they are due are no reason to expect the next as soon. A newcomer is taken for what its
heartbeat and its round trip say, as if some such gaps had been seen.

Time is in seconds, on the clock of whoever listens.
"""

from __future__ import annotations

import math
from array import array
from statistics import NormalDist

WINDOW = 64
"""Gaps that are looked back on."""

PRIOR_GAPS = 8
"""Gaps that what is expected of a link counts for, also later: no link is taken for quite regular."""

PRIOR_SHARE = 0.25
"""Deviation of a link that nothing is known of, as a share of a heartbeat."""

IN_TIME = 1e-6
"""Seconds by which no frame is late."""

SUSPICION, REMOVAL = 3.0, 8.0
"""Values of phi: one silence in a thousand, or in a hundred million, of a link that works is as long."""

ROUND_TRIPS = 4.0
"""Round trips of silence that always may be: what is lost twice in a row takes about three to come all the same."""

UNKNOWN_ROUND_TRIP = 0.5
"""Of a node that has asked for nothing yet, and so holds nothing that others wait for."""

CAUTION = 2.0
"""How many times later than the latest of its frames the next one may be."""

HALF_LIFE = 300.0
"""Seconds in which the latest frame counts half as late: outages come again after minutes."""


def deviations(phi: float) -> float:
    """By how many deviations a silence of that phi is longer than the mean."""
    return -NormalDist().inv_cdf(10.0**-phi)


_SUSPICIOUS, _REMOVED = deviations(SUSPICION), deviations(REMOVAL)


class FailureDetector:
    """One link's. `longest` is the silence from which on nothing excuses it."""

    __slots__ = ("_closes", "_gap", "_late", "_late_at", "_num", "_place", "_squares", "_sum", "_window", "longest")

    def __init__(self, longest: float) -> None:
        self.longest = longest
        self._window = array("d", bytes(8 * WINDOW))
        self._num = self._place = 0
        self._sum = self._squares = 0.0
        self._gap, self._closes = 0.0, -math.inf
        self._late = self._late_at = 0.0

    def heard(self, now: float, gap: float, heartbeat: float) -> None:
        """A frame has come, `gap` after the one before."""
        if gap > self._gap:
            self._gap = gap
        if now < self._closes:
            return
        late, self._gap, self._closes = self._gap - heartbeat, 0.0, now + 0.5 * heartbeat
        if late > IN_TIME or self._sum:
            self.learn(now, late)
        elif self._num < WINDOW:  # a steady link's window is all zeros, wherever the next one goes
            self._num += 1

    def learn(self, now: float, late: float) -> None:
        """A frame was so much later than a heartbeat is."""
        if late > IN_TIME:
            late = min(late, self.longest)
            if late > self.latest(now):
                self._late, self._late_at = late, now
        else:
            late = 0.0
        place = self._place
        old, self._window[place] = self._window[place], late
        self._place = place = (place + 1) % WINDOW
        if self._num < WINDOW:
            self._num += 1
        if late or old:
            self._sum += late - old
            self._squares += late * late - old * old
        if not place:  # rounding errors do not add up
            self._sum, self._squares = math.fsum(self._window), math.fsum(late * late for late in self._window)

    def latest(self, now: float) -> float:
        """How late its frames were at worst, the longer ago the less."""
        return self._late * 0.5 ** ((now - self._late_at) / HALF_LIFE) if self._late else 0.0

    def phi(self, silence: float, heartbeat: float, round_trip: float = 0.0) -> float:
        """How suspicious so long a silence is; infinite where no float says how little likely it is."""
        mean, deviation = self._normal(heartbeat, round_trip)
        later = 0.5 * math.erfc((silence - mean) / (math.sqrt(2.0) * deviation))
        return -math.log10(later) if later > 0.0 else math.inf

    def suspicion(self, heartbeat: float, round_trip: float = 0.0) -> float:
        """The silence at which phi is SUSPICION."""
        mean, deviation = self._normal(heartbeat, round_trip)
        return mean + _SUSPICIOUS * deviation

    def patience(self, now: float, heartbeat: float, lease: float, round_trip: float = 0.0) -> float:
        """The silence at which the other end counts as gone: phi is REMOVAL, and longer than what loss and the latest
        frames excuse; never less than `lease`, and no more than the longest."""
        if lease >= self.longest:
            return lease
        mean, deviation = self._normal(heartbeat, round_trip)
        excused = ROUND_TRIPS * round_trip + max(lease, heartbeat + CAUTION * self.latest(now))
        return min(max(excused, mean + _REMOVED * deviation), self.longest)

    def _normal(self, heartbeat: float, round_trip: float) -> tuple[float, float]:
        """Mean and deviation of the time from one frame to the next."""
        expected, num = PRIOR_SHARE * heartbeat + round_trip, self._num + PRIOR_GAPS
        late = self._sum / num
        variance = (self._squares + PRIOR_GAPS * expected * expected) / num - late * late
        return heartbeat + late, math.sqrt(max(variance, expected * expected / num))
