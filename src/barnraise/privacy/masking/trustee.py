"""The state machine of a trustee: it endorses lists, and gives the seeds of a list that a quorum endorsed.

An assignment is bound to the first list with which the trustee endorses or releases it, and to no other list after
that. The trustee records a decision durably before it answers, so a crash between the two changes no answer: the state
is folded from the recorded decisions, and the same list has the same answer.

The trustee believes nothing of the controller's. Members' keys are on its own roster, the seeds in a share must fit the
commitments that the member signed, and groups follow from the entries. It compares the digests of versions that members
signed with each other and with those of earlier lists: a host that gives members different models is found out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import msgspec

from barnraise.core.errors import PayloadError
from barnraise.trust.signatures import Signer, endorsed

from .lists import MemberEntry, MemberList
from .sealing import SealingKey, committed
from .terms import DIGEST_BYTES, MaskTerms


class ListBound(msgspec.Struct, frozen=True, tag="bound"):
    """A decision: the trustee binds the assignments, the nonce and the digests of versions to a list."""

    digest: str
    nonce: str
    assignments: tuple[int, ...]
    models: tuple[tuple[int, str], ...]


class SeedsGiven(msgspec.Struct, frozen=True, tag="given"):
    """A decision: the trustee gives the sums of this list's seeds."""

    digest: str


TrusteeDecision: TypeAlias = ListBound | SeedsGiven


@dataclass(frozen=True)
class Endorsement:
    """A trustee's signature of a list."""

    trustee: str
    signature: str


@dataclass(frozen=True)
class ListRefused:
    """A trustee's refusal of a list; `faults` says of assignments what is wrong with each of them.

    `unlisted` are those of nodes that are not on the trustee's roster with the key that they signed with, which proves
    nothing against them.
    """

    reason: str
    faults: Mapping[int, str] = field(default_factory=dict)
    unlisted: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Expansion:
    """The seeds that a trustee expands and adds, for each portion and in it for each group of the list."""

    terms: MaskTerms
    portions: tuple[tuple[tuple[bytes, ...], ...], ...]


@dataclass(frozen=True)
class TrusteeSettings:
    """A trustee's number in the committee, its keys, and what it accepts.

    `roster` has the signing key of each member by its node's name. `least_members` is K_min, the fewest members of a
    group.
    """

    number: int
    signer: Signer
    sealing: SealingKey
    terms: MaskTerms
    roster: Mapping[str, str]
    least_members: int


class TrusteeMachine:
    """The machine of one trustee; `record` makes a decision durable and raises when it cannot."""

    def __init__(
        self,
        settings: TrusteeSettings,
        record: Callable[[TrusteeDecision], None],
        decisions: Iterable[TrusteeDecision] = (),
    ) -> None:
        assert settings.terms.committee is not None
        self.settings, self.committee, self._record = settings, settings.terms.committee, record
        self.name = self.committee.trustees[settings.number].name
        self._lists: dict[int, str] = {}
        self._nonces: dict[str, str] = {}
        self._models: dict[int, str] = {}
        self._given: set[str] = set()
        self._kept: tuple[str, list[list[bytes]]] = "", []  # the opened seeds of the list that was bound last
        self._known: dict[tuple[str, MemberEntry], list[bytes]] = {}  # by terms and entry, of the list that came last
        for decision in decisions:
            self._apply(decision)

    def vet(self, members: MemberList, shares: Sequence[bytes]) -> ListRefused:
        """Return what is wrong with a list as a whole ("": nothing), and with single entries; nothing is bound by it.

        The controller asks for it before it fixes a list, so that one bad share does not cost the list.
        """
        reason = self._refusal(members)
        return (
            ListRefused(reason)
            if reason
            else self._faulty("", members, self._opened(members, shares, members.digest)[1])
        )

    def endorse(self, members: MemberList, shares: Sequence[bytes]) -> Endorsement | ListRefused:
        """Endorse a list, and bind its assignments to it; `shares` are this trustee's, in the order of the entries."""
        refused = self._bind(members, shares)
        if isinstance(refused, ListRefused):
            return refused
        return Endorsement(self.name, self.settings.signer.sign(endorsed(members.run, self.name, members.digest)))

    def give(
        self,
        members: MemberList,
        shares: Sequence[bytes],
        endorsements: Mapping[str, str],
        portions: Sequence[Sequence[int]],
    ) -> Expansion | ListRefused:
        """Return the seeds to add for each of `portions`, numbers of seeds, of a list that a quorum endorsed.

        Sums over fewer seeds than all tell nothing beyond the list's sums, so any portions are given, and again.
        """
        known = self.committee.known[self.settings.number]
        for portion in portions:
            if not portion or len(set(portion)) != len(portion) or not set(portion) <= set(known):
                return ListRefused("a portion with seeds that this trustee does not know")
        found = len(members.endorsers(endorsements, self.committee))
        if found < self.committee.quorum:
            return ListRefused(f"{found} trustees signed this list, {self.committee.quorum} must")
        opened = self._bind(members, shares)
        if isinstance(opened, ListRefused):
            return opened
        if members.digest not in self._given:
            self._decide(SeedsGiven(members.digest))
        terms = replace(self.settings.terms, support=members.support)
        place = {seed: number for number, seed in enumerate(known)}
        return Expansion(
            terms,
            tuple(
                tuple(tuple(opened[one][place[seed]] for one in group for seed in portion) for group in members.groups)
                for portion in portions
            ),
        )

    def _bind(self, members: MemberList, shares: Sequence[bytes]) -> list[list[bytes]] | ListRefused:
        """Return the opened seeds of each entry once the list is bound, or the refusal.

        The seeds of the list that was bound last are kept until the next one, so that a release opens no share again.
        """
        digest = members.digest
        if self._kept[0] == digest:
            return self._kept[1]
        if reason := self._refusal(members):
            return ListRefused(reason)
        opened, faults = self._opened(members, shares, digest)
        if faults:
            return self._faulty(f"{len(faults)} of {len(members.entries)} entries are refused", members, faults)
        if self._nonces.get(members.nonce) != digest:
            assignments = tuple(entry.assignment for entry in members.entries)
            models = {version: model for version, model in _models(members) if version not in self._models}
            self._decide(ListBound(digest, members.nonce, assignments, tuple(sorted(models.items()))))
        self._kept = digest, opened
        return opened

    def _faulty(self, reason: str, members: MemberList, faults: Mapping[int, str]) -> ListRefused:
        refused = (entry for entry in members.entries if entry.assignment in faults)
        return ListRefused(
            reason, faults, frozenset(one.assignment for one in refused if not self._knows(members, one))
        )

    def _knows(self, members: MemberList, entry: MemberEntry) -> bool:
        """Return whether the entry is signed with the key that the roster has of its node."""
        public = self.settings.roster.get(entry.node)
        return public is not None and entry.is_signed(members.run, members.terms, public)

    def _refusal(self, members: MemberList) -> str:
        """Say what is wrong with a list as a whole, or return ""."""
        settings = self.settings
        if members.run != settings.terms.run:
            return "a list of another run"
        if members.terms != replace(settings.terms, support=members.support).digest:
            return "a list under other terms"
        if self._nonces.get(members.nonce, members.digest) != members.digest:
            return "a nonce that another list has"
        if len({entry.node for entry in members.entries}) < len(members.entries):
            return "a member twice"
        if len({entry.assignment for entry in members.entries}) < len(members.entries):
            return "an assignment twice"
        sizes = [len(group) for group in members.groups]
        if min(sizes) < settings.least_members:
            return f"a group of {min(sizes)} members, must have at least {settings.least_members}"
        if max(sizes) > settings.terms.ring.most_members:
            return f"a group of {max(sizes)} members, whose sum could wrap: at most {settings.terms.ring.most_members}"
        seen = dict(self._models)
        for version, model in _models(members):
            if version >= members.version:
                return f"a member that trained from version {version}, which is not made yet"
            if seen.setdefault(version, model) != model:
                return f"two models of version {version}: members or trustees were given different ones"
        return ""

    def _opened(
        self, members: MemberList, shares: Sequence[bytes], digest: str
    ) -> tuple[list[list[bytes]], dict[int, str]]:
        """Return the seeds of each entry, and what is wrong with entries by assignment."""
        if len(shares) != len(members.entries):
            return [], {entry.assignment: "the shares do not fit the entries" for entry in members.entries}
        opened, faults, known = [], {}, self._known
        self._known = {}
        for entry, share in zip(members.entries, shares, strict=True):
            if self._lists.get(entry.assignment, digest) != digest:
                faults[entry.assignment] = "masks: an update that was endorsed in another list"
                continue
            place = members.terms, entry
            try:
                self._known[place] = known.get(place) or self._open(members, entry, share)
                opened.append(self._known[place])
            except PayloadError as error:
                faults[entry.assignment] = str(error)
        return opened, faults

    def _open(self, members: MemberList, entry: MemberEntry, share: bytes) -> list[bytes]:
        """Return the seeds in a member's share; PayloadError for a foreign or unsigned entry, or a share that lies."""
        settings, known = self.settings, self.committee.known[self.settings.number]
        public = settings.roster.get(entry.node)
        if public is None:
            raise PayloadError(f"masks: node {entry.node} is not on the roster of trustee {self.name}")
        if not entry.is_signed(members.run, members.terms, public):
            raise PayloadError(f"masks: an entry that node {entry.node} did not sign")
        terms = replace(settings.terms, support=members.support)
        seeds = settings.sealing.open(share, terms.binding(*entry.origin), settings.number)
        if len(entry.commitments) != len(self.committee.subsets) * DIGEST_BYTES or committed(seeds) != b"".join(
            entry.commitments[seed * DIGEST_BYTES : (seed + 1) * DIGEST_BYTES] for seed in known
        ):
            raise PayloadError("masks: a share whose seeds are not those that the member signed")
        return seeds

    def _decide(self, decision: TrusteeDecision) -> None:
        self._record(decision)
        self._apply(decision)

    def _apply(self, decision: TrusteeDecision) -> None:
        if isinstance(decision, SeedsGiven):
            self._given.add(decision.digest)
            return
        self._nonces[decision.nonce] = decision.digest
        self._models.update(decision.models)
        self._lists.update(dict.fromkeys(decision.assignments, decision.digest))


def _models(members: MemberList) -> list[tuple[int, str]]:
    """Return the versions of which the list or its members give digests, with these."""
    return [(members.version - 1, members.model), *((entry.base, entry.model) for entry in members.entries)]
