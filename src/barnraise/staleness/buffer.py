"""The number of nodes in a version (K), so that work is not too stale and versions leave room on links."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median

OVERLAPPING = 2.0
"""Task times that pass until a contribution arrives while the next task runs, as a first estimate."""

LINE_SHARE = 0.5
"""Share of a node's downlink that versions may take, since rows and the model need it too."""

SLOWEST_LINES = 0.25
"""Share of the nodes whose downlinks may be slower than K allows for: they do not slow all others' versions."""


ENOUGH = 4
"""Nodes of which one may be an exception."""


def common(delays: Sequence[float]) -> list[float]:
    """Return `delays` with the longest replaced by the next, where there are several.

    One node's delay from task to contribution, or its claim of it, is no reason for the others to wait.

    >>> common([1.0, 9.0, 1.5, 2.0]), common([1.0, 9.0])
    ([1.0, 2.0, 1.5, 2.0], [1.0, 9.0])
    """
    if len(delays) < ENOUGH:
        return list(delays)
    most = sorted(delays)[-2]
    return [min(delay, most) for delay in delays]


def least_buffer(rates: Sequence[float], bound: Callable[[float], int], delays: Sequence[float] | None = None) -> int:
    """Return the least K that keeps each node's steady staleness within half its bound.

    `rates` are all nodes' tokens a second (or relative speeds), 0 where not known; `bound` is a policy's, of the rate
    over the median. A version takes K contributions while all nodes make sum(rates), so a node of rate r finds
    sum(rates) / (K r) versions made during its task, and `delays` times as many (at least 1) where a contribution is in
    flight while the next task runs. The number of nodes when one of them may not be stale at all.

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
    """Return the least K at which versions take at most half of a downlink, for all but a quarter of the nodes.

    All nodes together make `contributions` a second, so there are contributions / K versions, which each node fetches;
    `lines` are each node's bytes a second, infinite where that is not known.

    >>> least_buffer_for_lines(2.0, 1_000_000, [500_000.0, 1e6, 1e6, 1e6])  # a version in two seconds
    4
    """
    if not lines:
        return 1
    line = sorted(lines)[int(SLOWEST_LINES * len(lines))]
    return max(1, math.ceil(contributions * version_bytes / (LINE_SHARE * line) - 1e-9))
