"""A sequential test of whether a node trains on its assigned rows, from one comparison for each update.

An update lowers the loss on its own rows by more than on others of their kind, however good the model is by then
("proof of computation": Lidin et al. 2025, Gauntlet). A comparison passes if that holds by more than ENOUGH standard
errors: an honest node's nearly always, that of a node that trained on other rows, or not at all, about one time in six,
and where half of the work is done half as often. Each comparison x moves the suspicion W by its log likelihood ratio
(Page 1954, CUSUM; in nats)

    W <- max(0, W + log(q(x) / p(x)))        q(pass) = OTHER, p(pass) = `expected` of the fleet

and at LIMIT = -log(ODDS) a node is discredited. While honest nodes pass as often as p, exp(W) is never above the
Shiryaev-Roberts sum, a submartingale of mean n after n comparisons, so by Doob's inequality

    P(an honest node is discredited within n comparisons) <= n * ODDS

for any length of the run, and any choice of the comparisons that depends on the past only. W starts at 0 after each
honest stretch, so a good reputation gives no credit. `expected` is the median node's pass rate, and never more than
MOST: where comparisons say little, as in the first versions of a run, or with a codec that drops nearly all, they have
little effect. benchmarks/liars.py prints how often honest nodes pass, and which nodes are discredited when.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from barnraise.trust import owners

ENOUGH = 1.0
"""Standard errors by which the loss on its own rows must fall more than on others."""

OTHER, MOST = 0.25, 0.9
"""Pass rates: of a node that does little of its work, and the most that is expected of honest nodes."""

ODDS = 1e-4
LIMIT = -math.log(ODDS)

MEMORY = 0.1
"""Weight of a comparison in a node's pass rate, at least."""

KNOWN = 8
"""Comparisons after which a node counts for the expected rate."""


def passing(rate: float, count: int, passed: bool) -> float:
    """Return a node's pass rate after one comparison more than `count`.

    Laplace's rule of succession, then an exponentially weighted mean.

    >>> round(passing(OTHER, 0, True), 3), round(passing(0.8, 3, False), 3), round(passing(0.9, 100, False), 3)
    (0.5, 0.667, 0.81)
    """
    return rate + max(MEMORY, 1.0 / (count + 3)) * (passed - rate)


def after(suspicion: float, passed: bool, expected: float = MOST) -> float:
    """Return the suspicion after one more comparison.

    >>> found = [0.0]
    >>> for passed in (True, False, False, True, False):
    ...     found.append(after(found[-1], passed))
    >>> [round(one, 2) for one in found]
    [0.0, 0.0, 2.01, 4.03, 2.75, 4.76]
    >>> after(1.0, False, OTHER)
    1.0
    """
    likely = (OTHER, expected) if passed else (1.0 - OTHER, 1.0 - expected)
    return max(0.0, suspicion + math.log(likely[0] / likely[1]))


def expected(rates: Iterable[tuple[str, float]]) -> float:
    """Return the expected pass rate of an honest node from the (owner, rate) pairs of all that train.

    It is at least OTHER, which says nothing, and at most MOST. A node that is not KNOWN yet is given with a rate of
    OTHER. So the few that are known first do not decide the rate for the rest, and fewer than half of the owners cannot
    raise it above the others' rates.

    >>> expected([]), expected([("a", 0.1)]), expected([("a", 0.5), ("b", 0.8), ("c", 0.99)]), expected([("a", 0.95)])
    (0.25, 0.25, 0.8, 0.9)
    """
    return min(MOST, max(OTHER, owners.median(rates)))
