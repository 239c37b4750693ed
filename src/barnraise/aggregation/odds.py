"""How likely a buffer holds more liars than its rule is for, and the least buffer for which that is unlikely enough.

A version is made of the contributions of n distinct nodes of N that live, of whom `liars` lie. Where chance says whose
come first, the number of liars among them is hypergeometric: P[X = x] = C(B, x) C(N-B, n-x) / C(N, n). It is summed in
whole numbers, so it is exact. Liars who hand in sooner than others are more of a buffer than that: K nodes are all that
live where that is feared. Imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

_SLACK = 1e-9  # 0.29 * 100 is 28.999999999999996


def believed(share: float, living: int) -> int:
    """How many of the living lie, if that share does: rounded up.

    >>> believed(0.2, 9), believed(0.2, 10), believed(0.0, 10)
    (2, 2, 0)
    """
    return math.ceil(share * living - _SLACK)


def exceeding(living: int, liars: int, nodes: int, f: int) -> float:
    """P[more than f of so many `nodes` lie], of those drawn without return from the living.

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
    for x in range(first, most):  # each from the one before, as binomials are costly
        ways = ways * (liars - x) * (nodes - x) // ((x + 1) * (honest - nodes + x + 1))
        total += ways
    return total / math.comb(living, nodes)


def least_f(living: int, liars: int, nodes: int, target: float) -> int:
    """The least f that a buffer of so many nodes exceeds with a probability of `target` at most.

    >>> least_f(100, 20, 64, 1e-6), least_f(100, 10, 32, 1e-6)
    (20, 10)
    """
    return next(f for f in range(nodes + 1) if exceeding(living, liars, nodes, f) <= target)


class BufferOdds(NamedTuple):
    """`nodes` contributions, a rule for `f` liars among them, and how likely they are more."""

    nodes: int
    f: int
    odds: float


def least_buffer(living: int, liars: int, withstood: Callable[[int], int | None], target: float) -> BufferOdds | None:
    """The least buffer that holds more liars than its rule withstands with a probability of `target` at most; where
    there is none, the one with the least probability, of equal ones the smallest. None where the rule is for no number
    of liars with any.

    `withstood(n)` is the rule's f for n nodes.

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
