"""Predictions of a task's time on a node, from the observed times of the node's finished tasks.

    p_ij = work_j * pace_ik                k: tasks of one kind whose steps are about as large as those of j
    d_ij = bytes down / down_i + bytes up / up_i + latencies

`pace_ik` is the mean of the logarithms of seconds a unit of work over the node's newest tasks of the sort k, a quarter
of them left out at each end (one task that took ten times as long moves little), shrunk towards that over all its
newest tasks while few of the sort were seen. Seconds are those that the controller observed, from when the node was
free to its result; a node's claimed speed counts until its first task is done, and its claims of the link only shift
seconds between p and d: their sum was observed. Results that were held back and submitted at once count as one, so that
no node seems faster for it.

Each half has an uncertainty of its own: the deviation of the newest tasks from their predictions, and the uncertainty
of the estimate from so few.

Pure: the same tasks in the same order make the same predictor, so a replayed ledger restores it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

REMEMBERED = 8
"""Tasks of a node, and of each sort of tasks, that are remembered."""

MOST_SORTS = 16
"""Sorts of tasks of a node that are distinguished: the newest."""

DOUBT = 1.0
"""Weight, in tasks, of the node's own pace beside those of a sort."""

AT_ONCE, EARLY = 0.25, 0.2
"""Bounds that recognise a held-back result, which counts together with the one before.

It took less than the first share of the expected time, and the node had its task for more than the second share of the
one before. At most MOST_AT_ONCE of them, as many as a node may have open.
"""

MOST_AT_ONCE = 4

LEAST_SHARE = 0.25
"""Share of the observed time that counts as computing, for any claimed link."""

UNKNOWN_SPREAD = 0.7
"""Standard deviation of the logarithm of seconds, before two tasks were seen: within a factor of two."""

LEAST_SPREAD = 0.01
"""Lower bound of a standard deviation."""

FEW, MOSTLY = 3, 0.5
"""Tasks that define a node's speed in any case; from then on only tasks that wait for bytes less than this share of
time."""

MOST_OFF = 8.0
"""Factor, at most, between observed and expected fetch times."""

SHORTEST, LONGEST = 1e-12, 1e12
"""Bounds of seconds a unit of work, and of seconds, so that everything stays finite."""


class Times(msgspec.Struct, frozen=True, gc=False):
    """The expected times of a task: seconds of computing, of fetching before it, and of sending after it.

    The deviations are standard deviations of the logarithms of the first, and of the other two.
    """

    compute: float = 0.0
    fetch: float = 0.0
    send: float = 0.0
    compute_spread: float = 0.0
    link_spread: float = 0.0

    @property
    def total(self) -> float:
        """Return c_ij in seconds, without prices."""
        return self.compute + self.fetch + self.send

    def end(self, given: float, free: float) -> float:
        """Return when the result is expected of a task `given` at a time to a node that is free from `free` on.

        It fetches while it computes the task before.
        """
        return max(given + self.fetch, free) + self.compute + self.send

    def waits(self, given: float, free: float) -> float:
        """Return the seconds for which a free node has to wait for the task's bytes."""
        return max(0.0, given + self.fetch - (given if given > free else free))

    def deviation(self, given: float, free: float) -> float:
        """Return the standard deviation of `end` in seconds.

        Fetches while the node computes delay nothing.
        """
        return math.hypot(self.compute_spread * self.compute, self.link_spread * (self.waits(given, free) + self.send))

    def computed(self, given: float, free: float, done: float) -> float:
        """Return the seconds of computing of a task whose result came at `done`."""
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
        pace = self.seconds / self.work
        return math.log(pace if SHORTEST <= pace <= LONGEST else within(pace))


class Learned(msgspec.Struct):
    """Statistics of a node's tasks: its pace, links and when it was free.

    They are the pace (logarithm of seconds a unit of work), the deviation of tasks from it, the paces of the newest
    tasks of each sort, the factor of fetch times over the link's figures (a logarithm) and its deviation, and since
    when it was free.
    """

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
        """Return the units of work a second; 0 before the first task."""
        return math.exp(-self.pace) if self.newest else 0.0

    def compute(self, sort: str, work: float) -> float:
        """Return p_ij in seconds, of a task of a sort; 0 before the first task."""
        if not self.newest or not work > 0.0:
            return 0.0
        return within(work * math.exp(self._pace(sort)))

    def compute_spread(self, sort: str) -> float:
        """Return the standard deviation of p_ij's logarithm, with that of the estimate from few tasks."""
        known = len(self.sorts.get(sort, ())) + DOUBT if self.newest else 1.0
        return math.hypot(self.spread * math.sqrt(1.0 + 1.0 / known), UNKNOWN_SPREAD / max(1, self.tasks))

    def fetch(self, seconds: float) -> float:
        """Return the expected seconds of a transfer that takes `seconds` by the link's figures."""
        return within(seconds * math.exp(middle(self.fetched))) if self.fetched and seconds > 0.0 else seconds

    def observed(self, sort: str, work: float, times: Times, given: float, done: float) -> None:
        """Record a task with its expected `times`, when it was given and when it was done.

        Where most of its time is for its bytes, it measures the link, once the pace is known.
        """
        free, self.free = self.free, done - times.send
        waits = times.waits(given, free)
        if len(self.newest) < FEW or waits <= MOSTLY * (waits + times.compute):
            self.finished(sort, work, times.computed(given, free, done), early=free - given)
            return
        waited = done - times.send - max(given, free) - self.compute(sort, work)
        if times.fetch > 0.0 and math.isfinite(waits) and 0.0 < waited < math.inf:
            ratio = (waited + times.fetch - waits) / times.fetch
            known = middle(self.fetched) if self.fetched else 0.0
            self.fetched = [*self.fetched[1 - REMEMBERED :], known + math.log(min(max(ratio, 1 / MOST_OFF), MOST_OFF))]
            expected = middle(self.fetched)
            self.link_spread = spread([one - expected for one in self.fetched])

    def finished(self, sort: str, work: float, seconds: float, early: float = 0.0) -> None:
        """Record the seconds of a task, which the node had `early` seconds before, and update the estimates."""
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
        """Return the pace of a sort of tasks, shrunk towards the node's own."""
        known = self.sorts.get(sort, ())
        return (len(known) * middle(known) + DOUBT * self.pace) / (len(known) + DOUBT) if known else self.pace


def sort_of(kind: str, work: float, steps: int) -> str:
    """Return the sort of a task: its kind, and the size of a step to half an octave.

    >>> sort_of("train", 8 * 256 * 20, 20), sort_of("train", 8 * 1024 * 20, 20)
    ('train 22', 'train 26')
    """
    size = within(work / steps) if steps > 0 and work > 0.0 else 1.0
    return f"{kind} {round(2 * math.log2(size))}"


def transfer(num_bytes: float, bandwidth: float, latency: float) -> float:
    """Return the seconds that `num_bytes` bytes take on a link.

    >>> transfer(1e6, 1e6, 0.5), transfer(0, 1e6, 0.5)
    (1.5, 0.0)
    """
    return min(LONGEST, num_bytes / max(bandwidth, 1e-3) + latency) if num_bytes > 0 else 0.0


def middle(values: Sequence[float]) -> float:
    """Return the mean without a quarter of the values at each end, at least one of each of three.

    >>> middle([1.0]), middle([1.0, 2.0]), middle([1.0, 2.0, 90.0]), middle([0.0, 1.0, 3.0, 90.0])
    (1.0, 1.5, 2.0, 2.0)
    """
    count = len(values)
    if count == 1:
        return values[0]
    out = (count // 4 or 1) if count > 2 else 0
    kept = sorted(values)[out : count - out]
    return math.fsum(kept) / len(kept)


def spread(differences: Sequence[float]) -> float:
    """Return a robust standard deviation of `differences` from expectations.

    It is 1.5 median absolute deviations, as of a normal distribution, so outliers matter little.

    >>> spread([0.5, -0.5, 1.0, 50.0]), spread([0.0])
    (1.125, 0.7)
    """
    if len(differences) < 2:
        return UNKNOWN_SPREAD
    ordered, half = sorted(map(abs, differences)), len(differences) // 2
    median = ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
    return max(LEAST_SPREAD, 1.5 * median)


def within(value: float) -> float:
    """Hold a value within SHORTEST and LONGEST."""
    if value < SHORTEST:
        return SHORTEST
    return LONGEST if value > LONGEST else value
