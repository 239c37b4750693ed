"""The choice of a list's members and trustees from what trustees said of single entries before the list is fixed.

A worker may seal bad shares to some trustees, and a trustee may speak ill of good ones. At most t trustees lie, so an
entry that more than t trustees find faulty is bad, and a node that more than t trustees do not know is not on an honest
trustee's roster. Other refusals prove nothing: either the trustee does without this list, or the entry does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from .committee import Committee


class Chosen(NamedTuple):
    """The assignments that are listed, those that are proven bad, and the trustees that accept all that is listed.

    `unlisted` are those of nodes that more trustees than may collude do not know.
    """

    assignments: tuple[int, ...]
    proven: tuple[int, ...]
    trustees: tuple[int, ...]
    unlisted: tuple[int, ...] = ()


def choose(
    committee: Committee,
    assignments: Collection[int],
    refused: Mapping[int, Collection[int]],
    unlisted: Mapping[int, Collection[int]] | None = None,
    *,
    spare: int = 0,
) -> Chosen:
    """Choose from `assignments`, given those that each reachable trustee, by its number, refused.

    `unlisted` are those of them that it refused since their nodes are not on its roster. Leaves out proven entries
    first, and those of nodes that more trustees than may collude do not know. Then it does without the trustee that
    refuses most, while a quorum and `spare` trustees more remain, and after that without the entry that most of the
    others refuse.
    """
    against = {one: {trustee for trustee, bad in refused.items() if one in bad} for one in assignments}
    unknown = {one: {trustee for trustee, them in (unlisted or {}).items() if one in them} for one in assignments}
    proven = {one for one in assignments if len(against[one] - unknown[one]) > committee.collude}
    strange = {one for one in assignments if len(unknown[one]) > committee.collude} - proven
    listed, trustees = set(assignments) - proven - strange, set(refused)
    least = committee.quorum + spare
    while open_refusals := [(one, trustee) for one in listed for trustee in against[one] & trustees]:
        counts = {trustee: sum(by == trustee for _, by in open_refusals) for trustee in trustees}
        worst = max(trustees, key=lambda trustee: (counts[trustee], trustee))
        if len(trustees) > least:
            trustees.remove(worst)
        else:
            listed.remove(max(listed, key=lambda one: (len(against[one] & trustees), one)))
    return Chosen(*(tuple(sorted(some)) for some in (listed, proven, trustees, strange)))
