"""Masked updates on the controller's side: their headers, the list of a version, and the sums of its groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from barnraise.controller.state.actions import Slot
from barnraise.controller.state.effects import Listed, ListMembers
from barnraise.controller.tensors.stages.arriving import Arrival, Look
from barnraise.controller.tensors.stages.base import ReadPayload, Sum, Whole
from barnraise.core.errors import CorruptionError, PayloadError, VersionRefusedError
from barnraise.core.types import Contribution
from barnraise.privacy.masking.lists import MemberList, entry_of, groups_of
from barnraise.privacy.masking.payload import UpdateOrigin, parse
from barnraise.privacy.masking.seats import committee_of
from barnraise.privacy.masking.sums import GroupSums
from barnraise.privacy.masking.terms import MaskTerms


@dataclass(frozen=True)
class GroupsRead:
    """The sums of a list's groups; and by the contributions of a group that is left out, why its sum is impossible."""

    sums: Sequence[Sum]
    left_out: Mapping[tuple[int, ...], str]


class Unmasker(Look):
    """Makes lists of masked updates under `terms`, in groups of `group` members (0: one), and the groups' sums.

    The terms have the right sizes; run and committee's keys are named by what asks for a list.
    """

    def __init__(self, terms: MaskTerms, group: int) -> None:
        self.terms, self.group = terms, group

    def look(self, arrival: Arrival) -> None:
        assert isinstance(arrival.result, Contribution), "only contributions are masked"
        parse(arrival.payload, self.terms)

    def listed(self, asked: ListMembers, read: ReadPayload) -> Listed:
        """Return the list of a version; or why members cannot be in it."""
        assert self.terms.committee is not None
        payloads, lost = self._read([member.assignment for member in asked.members], read)
        terms = replace(
            self.terms, run=asked.run, committee=committee_of(asked.committee, self.terms.committee.collude)
        )
        updates, entries, void = [], [], dict[int, str]()
        for member in asked.members if not lost else ():
            origin = UpdateOrigin(member.node, member.assignment, member.base, member.model)
            try:
                update = parse(payloads[member.assignment], terms)
            except PayloadError as error:
                void[member.assignment] = str(error)
                continue
            if fault := update.refuse_signature(origin, member.signer):
                void[member.assignment] = fault
            updates.append(update)
            entries.append(entry_of(update, origin))
        if void or lost:
            return Listed(asked.epoch, asked.version, void=void, lost=lost)
        members = MemberList(
            run=terms.run,
            version=asked.version,
            model=asked.model,
            nonce=asked.nonce,
            terms=terms.digest,
            support=terms.support,
            group=self.group,
            entries=tuple(entries),
        )
        shares = tuple(tuple(update.shares[seat] for update in updates) for seat in range(len(asked.committee)))
        about = members.digest, members.encode(), shares, len(members.groups)
        return Listed(asked.epoch, asked.version, *about)

    def sums(self, version: int, slots: Sequence[Slot], masks: Sequence[int], read: ReadPayload) -> GroupsRead:
        """Return the sums of the groups of a version's list, whose masks the payloads of `masks` sum up.

        A group whose sum honest members cannot have is left out, as one liar may be enough for it. That judges no
        member. VersionRefusedError where a payload cannot be read, or no group is left.
        """
        held = [(one.assignment, slot.node, one.staleness) for slot in slots for one in slot.contributions]
        payloads, lost = self._read([*(number for number, _, _ in held), *masks], read)
        if lost:
            raise VersionRefusedError(version, lost=lost)
        updates = [parse(payloads[number], self.terms) for number, _, _ in held]
        named = [(number, update.words_digest) for (number, _, _), update in zip(held, updates, strict=True)]
        groups = groups_of(version, named, self.group)
        total = GroupSums(self.terms, groups)
        for place, update in enumerate(updates):
            total.add(place, update)
        for number in masks:
            total.subtract(payloads[number])
        found, left_out = list[Sum](), dict[tuple[int, ...], str]()
        for group, mean in zip(groups, total.means(), strict=True):
            numbers, nodes, ages = zip(*(held[place] for place in group), strict=True)
            if isinstance(mean, str):
                left_out[tuple(sorted(numbers))] = f"the sum of {', '.join(sorted(nodes))}: {mean}"
                continue
            values, weight = mean
            values *= np.float32(weight)
            about = slots[0].parameters, Whole(values), weight, nodes, ages
            found.append(Sum(*about, grouped=self.group > 0))
        if not found:
            raise VersionRefusedError(version, "; ".join(left_out.values()))
        return GroupsRead(found, left_out)

    def _read(self, assignments: Iterable[int], read: ReadPayload) -> tuple[dict[int, Any], dict[int, str]]:
        """Return the payloads, and why others cannot be read."""
        found: dict[int, Any] = {}
        lost: dict[int, str] = {}
        for assignment in assignments:
            try:
                found[assignment] = read(assignment)
            except CorruptionError as error:
                lost[assignment] = str(error)
        return found, lost
