"""The phi accrual failure detector, one for each link: how long the other end may be silent.

N. Hayashibara, X. Defago, R. Yared and T. Katayama, "The phi accrual failure detector", SRDS 2004. Suspicion is no yes
or no, but a number that grows with the silence: from the times between frames so far follows how likely it is that the
next one comes still later,

    phi(t) = -log10 P_later(t),    P_later(t) = 1/2 erfc((t - mean) / (sqrt(2) * deviation)).

Frames come in bursts, and heartbeats are their regular part, so the statistics are of the longest gap in each
heartbeat's time, and of its excess over a heartbeat: the mean follows when heartbeats become rarer, and frames that
come before they are due are no reason to expect the next as soon. A new node is expected to behave as its heartbeat and
its round trip imply, as if some such gaps had been seen.

Time is in seconds, on the listener's clock.
"""

from __future__ import annotations

import math
from array import array
from statistics import NormalDist

WINDOW = 64
"""Gaps in the statistics."""

PRIOR_GAPS = 8
"""Gaps as which the prior counts, also later: no link is expected to be perfectly regular."""

PRIOR_SHARE = 0.25
"""Deviation of an unknown link, as a share of a heartbeat."""

IN_TIME = 1e-6
"""Seconds by which no frame is late."""

SUSPICION, REMOVAL = 3.0, 8.0
"""Values of phi: a working link has such a silence once in a thousand, or in a hundred million."""

ROUND_TRIPS = 4.0
"""Round trips of silence that are always allowed: a packet lost two times in a row takes about three to arrive."""

UNKNOWN_ROUND_TRIP = 0.5
"""Assumed round trip of a node without requests, which holds nothing that others wait for."""

CAUTION = 2.0
"""Factor by which the next frame may be later than the latest so far."""

HALF_LIFE = 300.0
"""Seconds in which the latest frame counts half as late: outages recur after minutes."""


def deviations(phi: float) -> float:
    """Return by how many deviations a silence of that phi is longer than the mean."""
    return -NormalDist().inv_cdf(10.0**-phi)


_SUSPICIOUS, _REMOVED = deviations(SUSPICION), deviations(REMOVAL)


class FailureDetector:
    """The detector of one link.

    `longest` is the silence that is never excused.
    """

    __slots__ = ("_closes", "_gap", "_late", "_late_at", "_num", "_place", "_squares", "_sum", "_window", "longest")

    def __init__(self, longest: float) -> None:
        self.longest = longest
        self._window = array("d", bytes(8 * WINDOW))
        self._num = self._place = 0
        self._sum = self._squares = 0.0
        self._gap, self._closes = 0.0, -math.inf
        self._late = self._late_at = 0.0

    def heard(self, now: float, gap: float, heartbeat: float) -> None:
        """Record a frame, `gap` after the one before."""
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
        """Record that a frame was `late` seconds later than a heartbeat."""
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
        """Return the largest lateness of its frames, discounted by age."""
        return self._late * 0.5 ** ((now - self._late_at) / HALF_LIFE) if self._late else 0.0

    def phi(self, silence: float, heartbeat: float, round_trip: float = 0.0) -> float:
        """Return the suspicion of a silence; infinite beyond the range of floats."""
        mean, deviation = self._normal(heartbeat, round_trip)
        later = 0.5 * math.erfc((silence - mean) / (math.sqrt(2.0) * deviation))
        return -math.log10(later) if later > 0.0 else math.inf

    def suspicion(self, heartbeat: float, round_trip: float = 0.0) -> float:
        """Return the silence at which phi is SUSPICION."""
        mean, deviation = self._normal(heartbeat, round_trip)
        return mean + _SUSPICIOUS * deviation

    def patience(self, now: float, heartbeat: float, lease: float, round_trip: float = 0.0) -> float:
        """Return the silence at which the other end counts as lost.

        Phi is REMOVAL, and longer than the excuse of losses and the latest frames; never less than `lease`, and no more
        than the longest.
        """
        if lease >= self.longest:
            return lease
        mean, deviation = self._normal(heartbeat, round_trip)
        latest = heartbeat + CAUTION * self.latest(now) if self._late else heartbeat
        excused, unlikely = (
            ROUND_TRIPS * round_trip + (lease if lease > latest else latest),
            mean + _REMOVED * deviation,
        )
        patience = excused if excused > unlikely else unlikely
        return patience if patience < self.longest else self.longest

    def _normal(self, heartbeat: float, round_trip: float) -> tuple[float, float]:
        """Return mean and deviation of the time from one frame to the next."""
        expected, num = PRIOR_SHARE * heartbeat + round_trip, self._num + PRIOR_GAPS
        late = self._sum / num
        variance = (self._squares + PRIOR_GAPS * expected * expected) / num - late * late
        least = expected * expected / num
        return heartbeat + late, math.sqrt(variance if variance > least else least)
