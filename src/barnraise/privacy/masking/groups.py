"""Groups of a list's members: each group's sum is read by itself, and a robust rule combines the groups' means.

One member can move its group's sum to any sum that honest members could have (see `shift`), so a group with a liar
counts as lost. Where n members form n // g groups, f liars spoil at most f groups, and a rule that withstands a
minority of groups withstands f < n / (2 g) liars. In exchange a member hides among g members, not among n.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from .ring import Ring


class GroupStanding(NamedTuple):
    """The two sides of a size of groups, which are stated together.

    A member hides among `anonymity` members, and a rule over the means of `num_groups` groups withstands `tolerance`
    liars.
    """

    num_groups: int
    anonymity: int
    tolerance: int

    def __str__(self) -> str:
        return (
            f"{self.num_groups} groups: a member hides among {self.anonymity}, "
            f"and the rule withstands {self.tolerance} liars"
        )


def standing(n: int, g: int) -> GroupStanding:
    """Return the anonymity and the tolerance of `n` members in groups of `g`; 0: all members in one group.

    >>> str(standing(20, 2))
    '10 groups: a member hides among 2, and the rule withstands 4 liars'
    >>> standing(20, 0).tolerance
    0
    """
    num_groups = count_groups(n, g)
    return GroupStanding(num_groups, n // num_groups if num_groups else 0, max(0, (num_groups - 1) // 2))


def count_groups(n: int, g: int) -> int:
    """Return the number of groups of at least `g` members that `n` members form; 0: all members in one group."""
    return min(n, 1) if g == 0 else max(min(n, 1), n // g)


def groups(names: Sequence[bytes], g: int, seed: bytes) -> tuple[tuple[int, ...], ...]:
    """Return random groups of `g` members or a few more, as ascending places in `names`; `seed` determines them.

    Members are ordered by SHA-256(seed | name) and cut into n // g runs whose lengths differ by at most 1. Fewer than
    `g` members are one group.
    """
    ranked = sorted(range(len(names)), key=lambda place: hashlib.sha256(seed + names[place]).digest())
    count = count_groups(len(names), g)
    return tuple(tuple(sorted(ranked[first::count])) for first in range(count))


def shift(ring: Ring, members: int) -> int:
    """Return by how many steps one member can move a value of the sum of `members` updates, at most.

    A word can be any number, so a sum can become any word of the ring: half the ring up or down from 0. `Ring.refusal`
    narrows it to the sums that honest members can have, members * L from 0. The other members' sum is up to
    (members - 1) * L on the other side. An honest member moves a value by L at most.
    """
    return min(ring.mask, (2 * members - 1) * ring.limit)
