"""The choice of a list's members and trustees from what trustees said of single entries before the list is fixed.

A worker may seal bad shares to some trustees, and a trustee may speak ill of good ones. At most t trustees lie, so an
entry that more than t trustees refuse is bad. Other refusals prove nothing: either the trustee does without this list,
or the entry does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from .committee import Committee


class Chosen(NamedTuple):
    """The assignments that are listed, those that are proven bad, and the trustees that accept all that is listed."""

    assignments: tuple[int, ...]
    proven: tuple[int, ...]
    trustees: tuple[int, ...]


def choose(
    committee: Committee, assignments: Collection[int], refused: Mapping[int, Collection[int]], *, spare: int = 0
) -> Chosen:
    """Choose from `assignments`, given those that each reachable trustee, by its number, refused.

    Leaves out proven entries first. Then it does without the trustee that refuses most, while a quorum and `spare`
    trustees more remain, and after that without the entry that most of the others refuse.
    """
    against = {one: {trustee for trustee, bad in refused.items() if one in bad} for one in assignments}
    proven = {one for one, trustees in against.items() if len(trustees) > committee.collude}
    listed, trustees = set(assignments) - proven, set(refused)
    least = committee.quorum + spare
    while open_refusals := [(one, trustee) for one in listed for trustee in against[one] & trustees]:
        counts = {trustee: sum(by == trustee for _, by in open_refusals) for trustee in trustees}
        worst = max(trustees, key=lambda trustee: (counts[trustee], trustee))
        if len(trustees) > least:
            trustees.remove(worst)
        else:
            listed.remove(max(listed, key=lambda one: (len(against[one] & trustees), one)))
    return Chosen(tuple(sorted(listed)), tuple(sorted(proven)), tuple(sorted(trustees)))
