"""How many nodes make a version (K), so that nobody's work is too stale when it arrives, and versions leave room on
lines."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median

OVERLAPPING = 2.0
"""Of the time that a node takes for a task, how many times pass until its contribution is in, where that is on its way
while the next task runs: before it was observed."""

LINE_SHARE = 0.5
"""Of a node's line down, how much versions may take: rows and the model come over it, too."""

SLOWEST_LINES = 0.25
"""Share of the nodes whose lines may be slower than what K is chosen for: they do not slow all others' versions."""


ENOUGH = 4
"""Nodes of which one may be an exception."""


def common(delays: Sequence[float]) -> list[float]:
    """`delays` of which the longest counts as the next, where there are several: what one node takes from a task to its
    contribution, or says that it takes, is no reason for the others to wait.

    >>> common([1.0, 9.0, 1.5, 2.0]), common([1.0, 9.0])
    ([1.0, 2.0, 1.5, 2.0], [1.0, 9.0])
    """
    if len(delays) < ENOUGH:
        return list(delays)
    most = sorted(delays)[-2]
    return [min(delay, most) for delay in delays]


def least_buffer(rates: Sequence[float], bound: Callable[[float], int], delays: Sequence[float] | None = None) -> int:
    """The least K that keeps each node's steady staleness within half its bound.

    `rates` are all nodes' tokens a second (or relative speeds), 0 where not known; `bound` is a policy's, of the rate
    over the median. A version takes K contributions while all nodes make sum(rates), so a node of rate r finds
    sum(rates) / (K r) versions made during its task, and `delays` times as many (at least 1) where a contribution is in
    flight while the next task runs. All nodes' number when somebody may not be stale at all.

    >>> least_buffer([100.0, 100.0, 10.0], lambda speed: 5)  # the slow one's: 2 * 210 / (10 * 5) = 8.4
    9
    """
    known = [(rate, delay) for rate, delay in zip(rates, delays or [1.0] * len(rates), strict=True) if rate > 0]
    if not known:
        return 1
    middle, total = median(rate for rate, _ in known), sum(rate for rate, _ in known)
    least = min(rate * bound(rate / middle) / delay for rate, delay in known)
    return max(1, math.ceil(2.0 * total / least - 1e-9)) if least > 0 else len(rates)


def least_buffer_for_lines(contributions: float, version_bytes: int, lines: Sequence[float]) -> int:
    """The least K at which versions take at most half of a line down, for all but a quarter of the nodes.

    All nodes together make so many `contributions` a second, so there are contributions / K versions, which each node
    fetches; `lines` are each node's bytes a second, infinite where that is not known.

    >>> least_buffer_for_lines(2.0, 1_000_000, [500_000.0, 1e6, 1e6, 1e6])  # a version in two seconds
    4
    """
    if not lines:
        return 1
    line = sorted(lines)[int(SLOWEST_LINES * len(lines))]
    return max(1, math.ceil(contributions * version_bytes / (LINE_SHARE * line) - 1e-9))
