"""How long a task will take on a node, from how long the node's finished tasks were seen to take.

    p_ij = work_j * pace_ik                k: tasks of one kind whose steps are about as large as those of j
    d_ij = bytes down / down_i + bytes up / up_i + latencies

`pace_ik` is the mean of the logarithms of seconds a unit of work over the node's newest tasks of the sort k, a quarter
of them left out at each end (one task that took ten times as long moves little), drawn towards that over all its
newest tasks while few of the sort were seen. Seconds are those that the controller saw, from when the node was free to
its result; what a node says of its own speed counts until its first task is done, and what it says of its link only
shifts seconds between p and d: their sum is what was seen. Results that were held back and come at once count as one,
so that nobody seems faster for it.

Each half has an uncertainty of its own: how far the newest tasks were from what was expected of them, and how well that
is known after so few.

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

DOUBT = 1.0
"""So many tasks of the node's own pace count beside those of a sort."""

AT_ONCE, EARLY = 0.25, 0.2
"""A result that took less than the first share of what was expected, of a task that the node had for more than the
second share of the one before, was held back: it counts together with that one. At most MOST_AT_ONCE of them, as many
as a node may have open."""

MOST_AT_ONCE = 4

LEAST_SHARE = 0.25
"""Of what was seen, that counts as computing however slow a node says that its link is."""

UNKNOWN_SPREAD = 0.7
"""Of the logarithm of seconds, before two tasks were seen: within a factor of two."""

LEAST_SPREAD = 0.01
"""Nothing is known better than that."""

FEW, MOSTLY = 3, 0.5
"""So many tasks say how fast a node computes, whatever they fetched; from then on those of which less than this share
is waiting for bytes."""

MOST_OFF = 8.0
"""What is fetched counts as at most so many times slower or faster than expected."""

SHORTEST, LONGEST = 1e-12, 1e12
"""Seconds a unit of work, and seconds, are held within: everything stays finite."""


class Times(msgspec.Struct, frozen=True, gc=False):
    """What a task is expected to take: seconds of computing, of fetching before it, and of sending after it; and the
    standard deviations of the logarithms of the first, and of the other two."""

    compute: float = 0.0
    fetch: float = 0.0
    send: float = 0.0
    compute_spread: float = 0.0
    link_spread: float = 0.0

    @property
    def total(self) -> float:
        """c_ij, prices aside."""
        return self.compute + self.fetch + self.send

    def end(self, given: float, free: float) -> float:
        """When the result is to come of a task that is `given` at a time to a node that computes nothing else from
        `free` on: it fetches meanwhile."""
        return max(given + self.fetch, free) + self.compute + self.send

    def waits(self, given: float, free: float) -> float:
        """Seconds for which a node that is free has to wait for the task's bytes."""
        return max(0.0, given + self.fetch - max(given, free))

    def deviation(self, given: float, free: float) -> float:
        """Seconds, a standard deviation, that `end` may be off: what is fetched while the node computes holds nothing
        up."""
        return math.hypot(self.compute_spread * self.compute, self.link_spread * (self.waits(given, free) + self.send))

    def computed(self, given: float, free: float, done: float) -> float:
        """Seconds of computing, of a task whose result came at `done`."""
        since = max(given, free)
        return max(done - self.send - since - self.waits(given, free), LEAST_SHARE * (done - since), 0.0)


class Seen(msgspec.Struct, array_like=True):
    """Tasks of a sort whose results came at once, mostly one: seconds of computing, and work."""

    sort: str
    seconds: float
    work: float
    tasks: int = 1

    @property
    def pace(self) -> float:
        return math.log(within(self.seconds / self.work))


class Learned(msgspec.Struct):
    """What a node's tasks tell of it: its pace (logarithm of seconds a unit of work), how far tasks were from that, the
    paces of the newest tasks of each sort, by how much what it fetched took longer than its link's figures say (a
    logarithm) and how far that scatters, and from when on it was free."""

    tasks: int = 0
    pace: float = 0.0
    spread: float = UNKNOWN_SPREAD
    free: float = 0.0
    newest: list[Seen] = []
    sorts: dict[str, list[float]] = {}
    fetched: list[float] = []
    link_spread: float = UNKNOWN_SPREAD

    @property
    def rate(self) -> float:
        """Units of work a second; 0 while no task was seen."""
        return math.exp(-self.pace) if self.newest else 0.0

    def compute(self, sort: str, work: float) -> float:
        """p_ij in seconds, of a task of a sort; 0 while no task was seen."""
        if not self.newest or not work > 0.0:
            return 0.0
        return within(work * math.exp(self._pace(sort)))

    def compute_spread(self, sort: str) -> float:
        """The standard deviation of p_ij's logarithm: of a task, and of what is expected after so few of the sort."""
        known = len(self.sorts.get(sort, ())) + DOUBT if self.newest else 1.0
        return math.hypot(self.spread * math.sqrt(1.0 + 1.0 / known), UNKNOWN_SPREAD / max(1, self.tasks))

    def fetch(self, seconds: float) -> float:
        """What takes so many seconds by the link's figures, as far as was seen."""
        return within(seconds * math.exp(middle(self.fetched))) if self.fetched and seconds > 0.0 else seconds

    def observed(self, sort: str, work: float, times: Times, given: float, done: float) -> None:
        """A task that was expected to take such `times` was given at a time and done at another. Where most of that is
        for its bytes, it says how fast they come, once the pace is known."""
        free, self.free = self.free, done - times.send
        waited = done - times.send - max(given, free) - self.compute(sort, work)
        waits = times.waits(given, free)
        if len(self.newest) < FEW or waits <= MOSTLY * (waits + times.compute):
            self.finished(sort, work, times.computed(given, free, done), early=free - given)
        elif times.fetch > 0.0 and math.isfinite(waits) and 0.0 < waited < math.inf:
            ratio = (waited + times.fetch - waits) / times.fetch
            known = middle(self.fetched) if self.fetched else 0.0
            self.fetched = [*self.fetched[1 - REMEMBERED :], known + math.log(min(max(ratio, 1 / MOST_OFF), MOST_OFF))]
            expected = middle(self.fetched)
            self.link_spread = spread([one - expected for one in self.fetched])

    def finished(self, sort: str, work: float, seconds: float, early: float = 0.0) -> None:
        """A task was seen to take so long, which the node had so much `early`: correct what is expected of the next."""
        if not work > 0.0 or not seconds >= 0.0 or not math.isfinite(work) or not math.isfinite(seconds):
            return
        seen, last = Seen(sort, within(seconds), within(work)), self.newest[-1] if self.newest else None
        held = last is not None and early > EARLY * last.seconds and seen.seconds < AT_ONCE * self.compute(sort, work)
        if last is not None and held and last.tasks < MOST_AT_ONCE:
            seen = Seen(last.sort, within(last.seconds + seconds), within(last.work + work), last.tasks + 1)
            self.newest, paces = [*self.newest[:-1], seen], self.sorts.get(last.sort, [])[:-1]
        else:
            self.newest, paces = [*self.newest[1 - REMEMBERED :], seen], self.sorts.get(sort, [])
        self.sorts.pop(seen.sort, None)  # the newest sort last
        self.sorts[seen.sort] = [*paces[1 - REMEMBERED :], seen.pace]
        while len(self.sorts) > MOST_SORTS:
            del self.sorts[next(iter(self.sorts))]
        self.tasks += 1
        newest = [each.pace for each in self.newest]
        self.pace = middle(newest)
        if len(newest) > 1:
            of_sort = {sort: self._pace(sort) for sort in {each.sort for each in self.newest}}
            self.spread = spread([pace - of_sort[each.sort] for pace, each in zip(newest, self.newest, strict=True)])

    def _pace(self, sort: str) -> float:
        """That of a sort of tasks: what was seen of it, drawn towards the node's own."""
        known = self.sorts.get(sort, ())
        return (len(known) * middle(known) + DOUBT * self.pace) / (len(known) + DOUBT) if known else self.pace


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


def spread(differences: Sequence[float]) -> float:
    """About the standard deviation of what differs so from what was expected: 1.5 median absolute deviations, as of a
    normal distribution, whatever a few of them are.

    >>> spread([0.5, -0.5, 1.0, 50.0]), spread([0.0])
    (1.125, 0.7)
    """
    if len(differences) < 2:
        return UNKNOWN_SPREAD
    return max(LEAST_SPREAD, 1.5 * median(map(abs, differences)))


def within(value: float) -> float:
    """Held within SHORTEST and LONGEST."""
    if value < SHORTEST:
        return SHORTEST
    return LONGEST if value > LONGEST else value
