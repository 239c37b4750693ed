"""The probability that a buffer holds more liars than its rule withstands, and the least buffer that limits it.

A version is made of the contributions of n distinct nodes of N live ones, of whom `liars` lie. If chance decides whose
come first, the number of liars among them is hypergeometric: P[X = x] = C(B, x) C(N-B, n-x) / C(N, n). It is summed in
whole numbers, so it is exact. Liars that submit sooner than others are a larger part of a buffer: if that is a risk, K
should be all live nodes. Imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

_SLACK = 1e-9  # tolerance: 0.29 * 100 is 28.999999999999996


def believed(share: float, living: int) -> int:
    """Return how many of the `living` nodes lie, if the share `share` does, rounded up.

    >>> believed(0.2, 9), believed(0.2, 10), believed(0.0, 10)
    (2, 2, 0)
    """
    return math.ceil(share * living - _SLACK)


def exceeding(living: int, liars: int, nodes: int, f: int) -> float:
    """Return P[more than f of `nodes` nodes lie], for nodes drawn without replacement from the living.

    >>> round(exceeding(100, 20, 32, 6), 2), exceeding(9, 2, 9, 2)
    (0.47, 0.0)
    """
    if not 0 <= liars <= living or not 0 <= nodes <= living:
        raise ValueError(f"{liars} liars and {nodes} nodes are not of {living}")
    honest = living - liars
    first, most = max(f + 1, nodes - honest, 0), min(liars, nodes)
    if first > most:
        return 0.0
    ways = total = math.comb(liars, first) * math.comb(honest, nodes - first)
    for x in range(first, most):  # each from the one before, since binomials are costly
        ways = ways * (liars - x) * (nodes - x) // ((x + 1) * (honest - nodes + x + 1))
        total += ways
    return total / math.comb(living, nodes)


def least_f(living: int, liars: int, nodes: int, target: float) -> int:
    """Return the least f that a buffer of `nodes` nodes exceeds with a probability of `target` at most.

    >>> least_f(100, 20, 64, 1e-6), least_f(100, 10, 32, 1e-6)
    (20, 10)
    """
    return next(f for f in range(nodes + 1) if exceeding(living, liars, nodes, f) <= target)


class BufferOdds(NamedTuple):
    """A buffer of `nodes` contributions with a rule for `f` liars, and the probability of more liars."""

    nodes: int
    f: int
    odds: float


def least_buffer(living: int, liars: int, withstood: Callable[[int], int | None], target: float) -> BufferOdds | None:
    """Return the least buffer that exceeds its rule's f with a probability of `target` at most.

    If there is none, the one with the least probability, of equal ones the smallest. None where the rule withstands no
    number of liars. `withstood(n)` is the rule's f for n nodes.

    >>> least_buffer(100, 20, lambda n: int(0.3 * n), 1e-6)
    BufferOdds(nodes=67, f=20, odds=0.0)
    """
    best: BufferOdds | None = None
    for nodes in range(1, living + 1):
        f = withstood(nodes)
        if f is None:
            continue
        odds = exceeding(living, liars, nodes, f)
        if best is None or odds < best.odds:
            best = BufferOdds(nodes, f, odds)
        if odds <= target:
            return BufferOdds(nodes, f, odds)
    return best
