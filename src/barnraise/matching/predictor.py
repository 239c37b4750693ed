"""How long a task will take on a node, from how long the node's finished tasks were seen to take.

    p_ij = work_j * pace_i * times_ik      k: tasks of one kind whose steps are about as large as those of j
    d_ij = bytes down / down_i + bytes up / up_i + latencies

`pace_i` is the mean of the logarithms of seconds a unit of work over the node's newest tasks, a quarter of them left
out at each end: one task that took ten times as long moves little. `times_ik` is by how much tasks like j were slower
than the node's others, drawn towards 1 while few were seen. Seconds are those that the controller saw, from when the
node was free to its result; what a node says of its own speed counts until its first task is done, and what it says of
its link only shifts seconds between p and d: their sum is what was seen. Results that come at once count as one, since
a node that holds results back is no faster for it.

Pure: the same tasks in the same order make the same predictor, so a ledger that is replayed makes it anew.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

import msgspec

REMEMBERED = 8
"""Tasks of a node, and of each sort of tasks, that are looked back on."""

MOST_SORTS = 16
"""Sorts of tasks of a node that are told apart: the newest."""

DOUBT = 2.0
"""With so many tasks of a sort half of what they differ by is believed."""

AT_ONCE = 0.25
"""A result that took less than this share of what was expected was held back, and comes together with the one before;
at most MOST_AT_ONCE of them, as many as a node may have open."""

MOST_AT_ONCE = 4

LEAST_SHARE = 0.25
"""Of what was seen, that counts as computing however slow a node says that its link is."""

UNKNOWN_SPREAD = 0.7
"""Of the logarithm of seconds, before two tasks were seen: within a factor of two."""

SHORTEST, LONGEST = 1e-12, 1e12
"""Seconds a unit of work, and seconds, are held within: everything stays finite."""


class Times(msgspec.Struct, frozen=True, gc=False):
    """What a task is expected to take: seconds of computing, of fetching before it, and of sending after it."""

    compute: float = 0.0
    fetch: float = 0.0
    send: float = 0.0

    @property
    def total(self) -> float:
        """c_ij, prices aside."""
        return self.compute + self.fetch + self.send

    def end(self, given: float, free: float) -> float:
        """When the result is to come of a task that is `given` at a time to a node whose last result came at `free`:
        what it fetches comes while it still computes, and it computes while it still sends."""
        start = max(given + self.fetch, free - self.send)
        return max(start + self.compute + self.send, free)

    def computed(self, given: float, free: float, done: float) -> float:
        """Seconds of computing, of a task whose result came at `done`."""
        start = max(given + self.fetch, free - self.send)
        return max(done - self.send - start, LEAST_SHARE * (done - max(given, free)), 0.0)


class Seen(msgspec.Struct, array_like=True):
    """Tasks whose results came at once, mostly one: seconds and work, the sort's factor taken out."""

    seconds: float
    work: float
    tasks: int = 1

    @property
    def pace(self) -> float:
        return math.log(within(self.seconds / self.work))


class Learned(msgspec.Struct):
    """What a node's tasks tell of it: its pace (logarithm of seconds a unit of work), how far tasks were from that, by
    how much those of each sort were slower, and when it was free last."""

    tasks: int = 0
    pace: float = 0.0
    spread: float = UNKNOWN_SPREAD
    free: float = 0.0
    newest: list[Seen] = []
    sorts: dict[str, list[float]] = {}

    @property
    def rate(self) -> float:
        """Units of work a second; 0 while no task was seen."""
        return math.exp(-self.pace) if self.newest else 0.0

    def compute(self, sort: str, work: float) -> float:
        """p_ij in seconds, of a task of a sort; 0 while no task was seen."""
        if not self.newest or not work > 0.0:
            return 0.0
        return within(work * math.exp(self.pace + self.slower(sort)))

    def slower(self, sort: str) -> float:
        """By how much tasks of a sort are slower than the node's others, as a logarithm."""
        known = self.sorts.get(sort, ())
        return middle(known) * len(known) / (len(known) + DOUBT) if known else 0.0

    def finished(self, sort: str, work: float, seconds: float) -> None:
        """A task was seen to take so long: correct what is expected of the next."""
        if not work > 0.0 or not seconds >= 0.0 or not math.isfinite(work) or not math.isfinite(seconds):
            return
        work, seconds, slower = within(work), within(seconds), math.exp(self.slower(sort))
        last = self.newest[-1] if self.newest else None
        if last is not None and seconds < AT_ONCE * self.compute(sort, work) and last.tasks < MOST_AT_ONCE:
            self.newest[-1] = Seen(within(last.seconds + seconds / slower), within(last.work + work), last.tasks + 1)
        else:
            if last is not None:
                self._compare(sort, math.log(within(seconds / work)) - self.pace)
            self.newest = [*self.newest[1 - REMEMBERED :], Seen(within(seconds / slower), work)]
        self.tasks += 1
        paces = [seen.pace for seen in self.newest]
        self.pace = middle(paces)
        if len(paces) > 1:
            self.spread = max(0.01, 1.5 * median(abs(pace - self.pace) for pace in paces))

    def _compare(self, sort: str, slower: float) -> None:
        """One task of a sort, beside the node's others."""
        known = self.sorts.pop(sort, [])
        self.sorts[sort] = [*known[1 - REMEMBERED :], slower]  # the newest sort last
        while len(self.sorts) > MOST_SORTS:
            del self.sorts[next(iter(self.sorts))]


def sort_of(kind: str, work: float, steps: int) -> str:
    """What tasks are told apart by: their kind, and how large a step is, to half an octave.

    >>> sort_of("train", 8 * 256 * 20, 20), sort_of("train", 8 * 1024 * 20, 20)
    ('train 22', 'train 26')
    """
    size = within(work / steps) if steps > 0 and work > 0.0 else 1.0
    return f"{kind} {round(2 * math.log2(size))}"


def transfer(num_bytes: float, bandwidth: float, latency: float) -> float:
    """Seconds that so many bytes take on a link.

    >>> transfer(1e6, 1e6, 0.5), transfer(0, 1e6, 0.5)
    (1.5, 0.0)
    """
    return min(LONGEST, num_bytes / max(bandwidth, 1e-3) + latency) if num_bytes > 0 else 0.0


def middle(values: Sequence[float]) -> float:
    """The mean without a quarter of the values at each end, and at least one of each of three.

    >>> middle([1.0]), middle([1.0, 2.0]), middle([1.0, 2.0, 90.0]), middle([0.0, 1.0, 3.0, 90.0])
    (1.0, 1.5, 2.0, 2.0)
    """
    out = max(len(values) // 4, int(len(values) > 2))
    kept = sorted(values)[out : len(values) - out]
    return math.fsum(kept) / len(kept)


def within(value: float) -> float:
    """Held within SHORTEST and LONGEST."""
    return min(max(value, SHORTEST), LONGEST)
