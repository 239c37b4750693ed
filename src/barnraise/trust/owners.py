"""Medians over nodes in which n nodes of one owner count less than n owners.

n nodes of one owner weigh as much as sqrt(n) owners: one invite makes many identities cheaply, so they do not outvote
others by their number; yet a laboratory behind one address is not outvoted by two strangers. Where each node has an
owner of its own, or all have the same, this is the ordinary median.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

_ROUNDING = 1e-9


def median(found: Iterable[tuple[str, float]]) -> float:
    """Return the weighted median of (owner, value) pairs: the mean of two where these share the middle; 0 for none.

    >>> median([("a", 1.0), ("b", 2.0), ("c", 9.0)]), median([("a", 1.0), ("a", 2.0)]), median([])
    (2.0, 1.5, 0.0)
    >>> median([("a", 1.0), ("b", 1.0), ("c", 2.0), *[("sybil", 9.0)] * 4])
    2.0
    """
    pairs = list(found)
    if len({owner for owner, _ in pairs}) == len(pairs):  # each has an owner of its own
        middle, alone = len(pairs) // 2, sorted([value for _, value in pairs])
        if len(alone) % 2:
            return alone[middle]
        return (alone[middle - 1] + alone[middle]) / 2.0 if alone else 0.0
    values = sorted([(value, owner) for owner, value in pairs])
    nodes = Counter(owner for owner, _ in pairs)
    half, below = sum(count**0.5 for count in nodes.values()) / 2.0, 0.0
    for place, (value, owner) in enumerate(values):
        below += nodes[owner] ** -0.5
        if below > half + _ROUNDING:
            return value
        if below > half - _ROUNDING:
            return (value + values[min(place + 1, len(values) - 1)][0]) / 2.0
    return 0.0


def share(owners: Iterable[str], of: Iterable[str]) -> float:
    """Return the weight of the nodes of `owners` as a share of those of `of`, which include them.

    >>> share(["a", "b"], ["a", "b", "c", "d"]), share(["s"] * 4, ["a", "b", *["s"] * 4]), share([], [])
    (0.5, 0.5, 0.0)
    """
    nodes = Counter(of)
    total = sum([count**0.5 for count in nodes.values()])
    return sum([nodes[owner] ** -0.5 for owner in owners]) / total if total else 0.0
