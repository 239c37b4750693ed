"""A group of masked updates with its trustees, as a malicious host meets them; one trustee is the host's own.

All parts are those of a run: payloads, lists, and the machines of the trustees that do not collude.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from barnraise.privacy.masking.committee import Committee, TrusteeKeys
from barnraise.privacy.masking.lists import MemberEntry, MemberList, entry_of
from barnraise.privacy.masking.payload import MaskedUpdate, UpdateOrigin, mask, parse
from barnraise.privacy.masking.ring import Ring
from barnraise.privacy.masking.sealing import SealingKey
from barnraise.privacy.masking.sums import GroupSums, expanded
from barnraise.privacy.masking.terms import MaskTerms
from barnraise.privacy.masking.trustee import Endorsement, Expansion, TrusteeMachine, TrusteeSettings
from barnraise.trust.signatures import RunId, Signer, endorsed

TRUSTEES, COLLUDING = 4, 1
"""The trustees, and how many of them are the host's own: the first ones."""

VALUE_BITS, MOST_MEMBERS, LEAST_MEMBERS = 16, 16, 2
BASE, VERSION = 3, 4
MODEL, OTHER_MODEL = "ab" * 32, "cd" * 32


class MaskedGroup:
    """Members whose updates, float32 [d] each, are masked, and the trustees; values saturate at `clip`.

    `known_to` are names that the honest trustees have on their rosters beside those of the members.
    """

    def __init__(self, updates: Sequence[Tensor], clip: float, known_to: Sequence[str] = ()) -> None:
        self.signers = [Signer(secrets.token_bytes(32)) for _ in range(TRUSTEES)]
        self.sealing = [SealingKey(secrets.token_bytes(32)) for _ in range(TRUSTEES)]
        keys = zip(self.signers, self.sealing, strict=True)
        committee = Committee(
            tuple(TrusteeKeys(f"t{number}", one.public, two.public) for number, (one, two) in enumerate(keys)),
            COLLUDING,
        )
        ring = Ring(VALUE_BITS, MOST_MEMBERS, clip)
        self.terms = MaskTerms(RunId("attacked", "k" * 40), ring, len(updates[0]), committee)
        self.committee, self.updates = committee, list(updates)
        self.host = Signer(secrets.token_bytes(32))
        self.members = {f"n{number}": Signer(secrets.token_bytes(32)) for number in range(len(updates))}
        roster = {name: one.public for name, one in self.members.items()}
        roster |= dict.fromkeys(known_to, self.host.public)
        self.trustees = {
            number: TrusteeMachine(
                TrusteeSettings(
                    number=number,
                    signer=self.signers[number],
                    sealing=self.sealing[number],
                    terms=self.terms,
                    roster=roster,
                    least_members=LEAST_MEMBERS,
                ),
                lambda decision: None,
            )
            for number in range(COLLUDING, TRUSTEES)
        }
        self.sent: dict[int, MaskedUpdate] = {}

    def masked(self, vector: Tensor, node: str, assignment: int, signer: Signer, model: str = MODEL) -> MemberEntry:
        """Quantise and mask a vector as the update of `node`, and return its entry."""
        origin, ring = UpdateOrigin(node, assignment, BASE, model), self.terms.ring
        words = ring.quantise(vector.numpy(), ring.most_weight)
        sent = parse(mask(self.terms, origin, words, signer), self.terms)
        self.sent[assignment] = sent
        return entry_of(sent, origin)

    def member(self, number: int, model: str = MODEL) -> MemberEntry:
        """Return the entry of an honest member's update."""
        name = f"n{number}"
        return self.masked(self.updates[number], name, number, self.members[name], model)

    def list_of(self, entries: Sequence[MemberEntry], nonce: str = "", group: int = 0) -> MemberList:
        """Return a list of the entries, as the host proposes it; the nonce is fresh unless given."""
        return MemberList(
            run=self.terms.run,
            version=VERSION,
            model=MODEL,
            nonce=nonce or secrets.token_hex(32),
            terms=self.terms.digest,
            support=self.terms.support,
            group=group,
            entries=tuple(entries),
        )

    def released(self, members: MemberList) -> list[Tensor] | None:
        """Play a list against the trustees: the sum of each group, or None where a seed is missing.

        The host's own trustees sign every list, and open the shares that they hold for it.
        """
        signed = {
            f"t{one}": self.signers[one].sign(endorsed(members.run, f"t{one}", members.digest))
            for one in range(COLLUDING)
        }
        for number, machine in self.trustees.items():
            answer = machine.endorse(members, self._shares(members, number))
            if isinstance(answer, Endorsement):
                signed[answer.trustee] = answer.signature
        sums = GroupSums(self.terms, members.groups)
        for place, entry in enumerate(members.entries):
            sums.add(place, self.sent[entry.assignment])
        for seed in range(len(self.committee.subsets)):
            work = self._seed(members, seed, signed)
            if work is None:
                return None
            for packed in expanded(work):
                sums.subtract(b"".join(packed))
        return [self._plain(total) for total in sums.sums]

    def words(self, assignment: int) -> Tensor:
        """Return the words of a message without the weight, read as if they had no mask."""
        return self._plain(self.sent[assignment].read())

    def _seed(self, members: MemberList, seed: int, signed: dict[str, str]) -> Expansion | None:
        for own in range(COLLUDING):
            if seed in self.committee.known[own]:
                return Expansion(self.terms, (self._opened(members, own, seed),))
        for number, machine in self.trustees.items():
            if seed in self.committee.known[number]:
                answer = machine.give(members, self._shares(members, number), signed, [[seed]])
                if isinstance(answer, Expansion):
                    return answer
        return None

    def _opened(self, members: MemberList, own: int, seed: int) -> tuple[tuple[bytes, ...], ...]:
        """Return the seeds of one number by group, opened with the key of a trustee of the host's."""
        place, shares = self.committee.known[own].index(seed), self._shares(members, own)
        opened = [
            self.sealing[own].open(share, self.terms.binding(*entry.origin), own)[place]
            for entry, share in zip(members.entries, shares, strict=True)
        ]
        return tuple(tuple(opened[one] for one in group) for group in members.groups)

    def _shares(self, members: MemberList, number: int) -> list[bytes]:
        return [self.sent[entry.assignment].shares[number] for entry in members.entries]

    def _plain(self, total: np.ndarray[Any, Any]) -> Tensor:
        """Return the values of a sum of words, float32 [d]."""
        ring = self.terms.ring
        return torch.from_numpy(ring.signed(total[1:]).astype(np.float64) * (ring.clip / ring.limit)).float()
