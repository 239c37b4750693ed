"""The number of updates that a rule or chain needs, and shares of attackers as whole numbers.

A share s of n updates is the largest whole number that is at most s n and that the rule withstands with n. It counts
only if it is at least one: below that a single attacker would exceed the share. Behind a rule that merges updates fewer
rows are left, of which at most as many hold an attacker's update as there are attackers. Imports no torch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from barnraise.core.registry import Entry

from .limits import fewest_for_one, share_of

Member: TypeAlias = tuple[Entry, Mapping[str, Any]]
"""A rule with its checked options, alone or in a chain."""

NODE = "{node}"
"""Placeholder in the name of a vector that a rule keeps for each node."""

_LEAST = 3
"""Fewest updates of which a share below a half is one."""


def shares_of(member: Member) -> dict[str, float]:
    """Return the options that were given as a share."""
    entry, options = member
    names = [option.name for option in entry.options if option.share]
    return {name: options[name] for name in names if type(options.get(name)) is float}


def fewer(member: Member, attackers: int) -> Member:
    """Return the member for this number of attackers fewer: whole numbers of them, down to the least allowed."""
    entry, options = member
    counts = [option for option in entry.options if option.share and type(options.get(option.name)) is int]
    less = {each.name: max(int(each.minimum or 0), options[each.name] - attackers) for each in counts}
    return entry, {**options, **less}


def given(members: Sequence[Member], num_updates: int) -> list[int]:
    """Return how many rows each member of a chain gets from `num_updates` updates."""
    found = []
    for entry, options in members:
        found.append(num_updates)
        num_updates = entry.declares.merges(options, num_updates) if entry.declares.merges else num_updates
    return found


def needs(members: Sequence[Member]) -> list[tuple[int, str]]:
    """Return for each member of a chain the fewest updates with which its guarantee holds, and that as a formula.

    With a share, against one attacker at least.
    """
    found = []
    for place, member in enumerate(members):
        front = [each for each in members[:place] if each[0].declares.merges]
        one, shares = _unmerged(front, _for_one(member)), shares_of(member)
        found.append((max([one, *map(fewest_for_one, shares.values())]), _limit(member, one, front)))
    return found


def fewest(members: Sequence[Member]) -> int:
    """Return the fewest updates that a rule or chain takes."""
    return max(needed for needed, _ in needs(members))


def counted(members: Sequence[Member], num_updates: int) -> list[Member]:
    """Return the members of a chain with whole numbers for their shares of `num_updates`, which suffice.

    The same number for all: a chain withstands no more than any of its members.
    """
    counts: dict[str, int] = {}
    for member, num_rows in zip(members, given(members, num_updates), strict=True):
        for name in shares_of(member):
            counts[name] = min(counts.get(name, num_updates), _most(member, name, num_updates, num_rows))
    return [
        (entry, {**options, **{name: counts[name] for name in shares_of((entry, options))}})
        for entry, options in members
    ]


def _for_one(member: Member) -> int:
    """Return the rule's minimum for a share that amounts to one."""
    entry, options = member
    found: int = entry.declares.minimum({**options, **dict.fromkeys(shares_of(member), 1)})
    return found


def _limit(member: Member, one: int, front: Sequence[Member]) -> str:
    entry, options = member
    found = [f"n >= 1/{name}" for name in shares_of(member)]
    if found:
        return " and ".join([*found, f"n >= {one}"] if one > _LEAST else found)
    return " behind ".join([str(entry.declares.limit(options)), *(merging.name for merging, _ in front)])


def _unmerged(front: Sequence[Member], num_rows: int) -> int:
    """Return the fewest updates of which the members in front leave `num_rows`."""
    for entry, options in reversed(front):
        merges, enough = partial(entry.declares.merges, options), num_rows
        while merges(enough) < num_rows:
            enough *= 2
        num_rows = bisect_left(range(enough), num_rows, key=merges)
    return num_rows


def _most(member: Member, name: str, num_updates: int, num_rows: int) -> int:
    entry, options = member
    counts = range(share_of(options[name], num_updates) + 1)
    return bisect_right(counts, num_rows, key=lambda count: entry.declares.minimum({**options, name: count})) - 1
