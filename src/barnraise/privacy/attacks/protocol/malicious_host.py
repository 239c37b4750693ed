"""A host that sends trustees other lists than the protocol's, to read the update of one member."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from barnraise.privacy.attacks.base import AttackTrial, PrivacyAttack
from barnraise.privacy.attacks.protections import GroupSum, MaskedMessage
from barnraise.privacy.attacks.protocol.masked_group import OTHER_MODEL, MaskedGroup
from barnraise.privacy.attacks.setting import AttackSetting

MEMBERS = 6
"""Members of a group; number 0 is the victim."""

VALUES = 4096
"""Values of an update that travel: the first ones, which are of the embedding."""

NONCE = "00" * 32


class MaliciousHost(PrivacyAttack):
    """Plays one of the host's acts against the trustees, one of whom is the host's; the score is a cosine similarity.

    The host knows every update but the victim's, as if it had made the others' models so that they send what it knows.
    Protections without masks show it the victim's update at once. The control reads the masked message alone.
    """

    def prepare(self, setting: AttackSetting, rng: np.random.Generator) -> None:
        """Choose no act yet: each trial plays the next one."""
        self.played = 0

    def trial(self, setting: AttackSetting, rng: np.random.Generator) -> AttackTrial:
        act = list(ACTS.values())[self.played % len(ACTS)]
        self.played += 1
        updates = [setting.update(rows)[:VALUES] for rows in setting.draw(rng, MEMBERS)]
        clip = float(torch.stack(updates).abs().max()) + 1e-12
        group = MaskedGroup(updates, clip)
        if not isinstance(setting.protection, GroupSum | MaskedMessage):
            group.member(0)
            return AttackTrial(likeness(setting.protection.seen(updates, rng), updates[0]), read(group))
        found = act(group)
        masked = read(group)
        return AttackTrial(masked if found is None else likeness(found, updates[0]), masked)


def likeness(found: Tensor, truth: Tensor) -> float:
    """Return the cosine similarity of two vectors, 0 where it is negative."""
    return max(0.0, float(torch.nn.functional.cosine_similarity(found, truth, dim=0)))


def read(group: MaskedGroup) -> float:
    """Return the likeness of the victim's masked words and its update."""
    return likeness(group.words(0), group.updates[0])


def second_list(group: MaskedGroup) -> Tensor | None:
    """Open the list of all members, and then the list without the victim."""
    entries = [group.member(number) for number in range(MEMBERS)]
    whole, rest = group.released(group.list_of(entries)), group.released(group.list_of(entries[1:]))
    return None if whole is None or rest is None else whole[0] - rest[0]


def replayed_nonce(group: MaskedGroup) -> Tensor | None:
    """Open the list without the victim, and then the list with it under the same nonce."""
    entries = [group.member(number) for number in range(MEMBERS)]
    rest, whole = group.released(group.list_of(entries[1:], NONCE)), group.released(group.list_of(entries, NONCE))
    return None if whole is None or rest is None else whole[0] - rest[0]


def single_member(group: MaskedGroup) -> Tensor | None:
    """Open a list of the victim alone."""
    found = group.released(group.list_of([group.member(0)]))
    return None if found is None else found[0]


def groups_of_one(group: MaskedGroup) -> Tensor | None:
    """Open a list of all members whose groups have one member each."""
    members = group.list_of([group.member(number) for number in range(MEMBERS)], group=1)
    found = group.released(members)
    if found is None:
        return None
    (place,) = (number for number, places in enumerate(members.groups) if 0 in places)
    return found[place]


def inconsistent_models(group: MaskedGroup) -> Tensor | None:
    """Give the victim another model than the others, and open the list of all."""
    entries = [group.member(0, OTHER_MODEL), *(group.member(number) for number in range(1, MEMBERS))]
    return _less_known(group, group.released(group.list_of(entries)), group.updates[1:])


def invented_members(group: MaskedGroup) -> Tensor | None:
    """Open a list of the victim and of members that the host invented."""
    entries = [group.member(0)]
    entries += [
        group.masked(group.updates[number], f"invented-{number}", 100 + number, group.host)
        for number in range(1, MEMBERS)
    ]
    return _less_known(group, group.released(group.list_of(entries)), group.updates[1:])


def forged_entries(group: MaskedGroup) -> Tensor | None:
    """Open a list of the victim and of entries that the host made in the names of real members."""
    entries = [group.member(0)]
    entries += [group.masked(group.updates[number], f"n{number}", number, group.host) for number in range(1, MEMBERS)]
    return _less_known(group, group.released(group.list_of(entries)), group.updates[1:])


ACTS: Mapping[str, Callable[[MaskedGroup], Tensor | None]] = {
    act.__name__: act
    for act in (
        second_list,
        replayed_nonce,
        single_member,
        groups_of_one,
        inconsistent_models,
        invented_members,
        forged_entries,
    )
}
"""The host's acts by name: each returns what the host learns of the victim's update, or None."""


def _less_known(group: MaskedGroup, sums: list[Tensor] | None, known: list[Tensor]) -> Tensor | None:
    return None if sums is None else sums[0] - torch.stack(known).sum(0)
