"""The state machine of one list on the controller's side: from its proposal to the portions whose sums are confirmed.

    proposed -> endorsed -> released -> made, and from each of the first three: aborted

The controller commits the list before `start`, and never lists an assignment again. After a restart it starts a new
machine with the same list: trustees answer the same list the same way.

A portion's sum counts once t + 1 trustees gave the same digest of it, since one of them is honest. A trustee that gave
another digest is then a proven liar, and is asked nothing more. Trustees that vanish are asked again when they return.
The machine aborts when refusals and lies leave too few trustees; silent trustees may return, so the caller decides
when to give the list up (`expire`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from .committee import Committee, Portion


class ListStatus(StrEnum):
    """How far a list is."""

    PROPOSED = "proposed"
    ENDORSED = "endorsed"
    RELEASED = "released"
    MADE = "made"
    ABORTED = "aborted"


@dataclass(frozen=True)
class AskEndorsement:
    """An action: ask the trustee for its signature of the list."""

    trustee: int


@dataclass(frozen=True)
class AskMasks:
    """An action: ask the trustee to expand a portion's seeds, and to send the sums or, else, their digest alone."""

    trustee: int
    seeds: tuple[int, ...]
    send: bool


@dataclass(frozen=True)
class TakeOff:
    """An action: take the masks with this digest, which `trustee` sent, off the list's sums.

    The caller keeps what arrives by its digest, since a trustee may send other sums later.
    """

    trustee: int
    seeds: tuple[int, ...]
    digest: str


@dataclass(frozen=True)
class ListMade:
    """An action: all masks are taken off; `liars` gave wrong sums."""

    liars: tuple[int, ...]


@dataclass(frozen=True)
class ListAborted:
    """An action: the list is given up, and its updates with it."""

    reason: str
    liars: tuple[int, ...]


ReleaseAction: TypeAlias = AskEndorsement | AskMasks | TakeOff | ListMade | ListAborted


@dataclass
class _Tally:
    """The questions and answers about one portion's sum."""

    portion: Portion
    pending: dict[int, bool] = field(default_factory=dict)  # by trustee that is asked: whether it is to send the sums
    votes: dict[int, str] = field(default_factory=dict)
    sent: dict[int, str] = field(default_factory=dict)  # the digests of sums that came, by trustee
    done: bool = False

    def leading(self) -> tuple[str, int]:
        """Return the digest with the most votes, and how many it has."""
        given = list(self.votes.values())
        return max(
            ((digest, given.count(digest)) for digest in given), key=lambda one: (one[1], one[0]), default=("", 0)
        )

    def forget(self, trustee: int) -> None:
        """Drop all that a trustee was asked or said."""
        for held in (self.pending, self.votes, self.sent):
            held.pop(trustee, None)


class ReleaseMachine:
    """The machine of one list; `reachable` are the numbers of the trustees that are connected.

    Each method returns the actions that follow, in order.
    """

    def __init__(self, committee: Committee, reachable: Iterable[int]) -> None:
        self.committee = committee
        self.status = ListStatus.PROPOSED
        self.signatures: dict[str, str] = {}
        self.liars: set[int] = set()
        self.refusals: dict[int, str] = {}
        self._reachable = set(reachable)
        self._tallies: dict[tuple[int, ...], _Tally] = {}

    @property
    def is_over(self) -> bool:
        """Return whether the list is made or aborted."""
        return self.status in (ListStatus.MADE, ListStatus.ABORTED)

    def start(self) -> list[ReleaseAction]:
        """Ask all reachable trustees to endorse the list."""
        return [AskEndorsement(one) for one in sorted(self._reachable)]

    def endorsed(self, trustee: int, signature: str) -> list[ReleaseAction]:
        """Take a signature, which the caller has verified."""
        if self.is_over or trustee in self.refusals:
            return []
        self.signatures[self.committee.trustees[trustee].name] = signature
        if self.status is ListStatus.PROPOSED and len(self.signatures) >= self.committee.quorum:
            self.status = ListStatus.ENDORSED
        return self._advance()

    def refused(self, trustee: int, reason: str) -> list[ReleaseAction]:
        """Note that a trustee refuses the list, or sent an answer that is none."""
        self.refusals.setdefault(trustee, reason)
        for tally in self._tallies.values():
            tally.pending.pop(trustee, None)
        return self._advance()

    def vanished(self, trustee: int) -> list[ReleaseAction]:
        """Note that a trustee is not connected; what it was asked is asked of others."""
        self._reachable.discard(trustee)
        for tally in self._tallies.values():
            tally.pending.pop(trustee, None)
        return self._advance()

    def returned(self, trustee: int) -> list[ReleaseAction]:
        """Note that a trustee is connected again."""
        again = trustee not in self._reachable
        self._reachable.add(trustee)
        ask = again and self.status is ListStatus.PROPOSED and trustee in self._willing()
        return [*([AskEndorsement(trustee)] if ask else []), *self._advance()]

    def answered(self, trustee: int, seeds: tuple[int, ...], digest: str, sent: bool) -> list[ReleaseAction]:
        """Take a portion's digest from a trustee; `sent`: the sums came with it, and the caller computed it."""
        tally = self._tallies.get(seeds)
        if self.is_over or tally is None or trustee not in tally.pending:
            return []
        if tally.pending.pop(trustee) and not sent:
            return self.refused(trustee, "it sent no sums")
        if tally.votes.setdefault(trustee, digest) != digest:
            self._convict(trustee)
        elif sent:
            tally.sent[trustee] = digest
        return self._advance()

    def expire(self, reason: str) -> list[ReleaseAction]:
        """Give the list up, unless it is over."""
        return [] if self.is_over else self._abort(reason)

    def _willing(self) -> set[int]:
        """Return the trustees that neither refused nor lied."""
        return set(range(self.committee.size)) - self.refusals.keys() - self.liars

    def _abort(self, reason: str) -> list[ReleaseAction]:
        self.status = ListStatus.ABORTED
        return [ListAborted(reason, tuple(sorted(self.liars)))]

    def _convict(self, trustee: int) -> None:
        self.liars.add(trustee)
        for tally in self._tallies.values():
            tally.forget(trustee)

    def _advance(self) -> list[ReleaseAction]:
        """Return what is next after any event."""
        if self.is_over:
            return []
        willing = self._willing()
        if self.status is ListStatus.PROPOSED:
            least = self.committee.quorum
            return self._abort(f"{len(willing)} trustees are left, {least} must sign") if len(willing) < least else []
        if len(willing) < self.committee.least_answering:
            return self._abort(f"{len(willing)} trustees are left, {self.committee.least_answering} must answer")
        if self.status is ListStatus.ENDORSED:
            answering = sorted(self._reachable & willing)
            if len(answering) < self.committee.least_answering:
                return []  # until a trustee returns
            self.status = ListStatus.RELEASED
            self._tallies = {one.seeds: _Tally(one) for one in self.committee.portions(answering)}
        actions: list[ReleaseAction] = []
        before: object = None
        while before != (before := (len(self.liars), tuple(self._tallies))):
            for tally in [one for one in self._tallies.values() if not one.done]:
                actions += self._press(tally)
                if self.is_over:
                    return actions
        if all(tally.done for tally in self._tallies.values()):
            self.status = ListStatus.MADE
            actions.append(ListMade(tuple(sorted(self.liars))))
        return actions

    def _press(self, tally: _Tally) -> list[ReleaseAction]:
        """Return what brings a portion nearer to its end."""
        need, (digest, votes) = self.committee.collude + 1, tally.leading()
        if votes >= need:
            for one in [one for one, vote in tally.votes.items() if vote != digest]:
                self._convict(one)
            for one, sent in sorted(tally.sent.items()):
                if sent == digest:
                    tally.done = True
                    return [TakeOff(one, tally.portion.seeds, digest)]
        usable = self._reachable & self._willing()
        knowers = [one for one in tally.portion.knowers if one in usable and one not in tally.pending]
        fresh = [one for one in knowers if one not in tally.votes]
        sending = any(tally.pending.values())
        if votes >= need:
            senders = [one for one in knowers if tally.votes.get(one) == digest] + fresh
            if sending:
                return []
            return self._ask(tally, senders[:1], True) if senders else self._split(tally)
        missing = need - votes - len(tally.pending)
        if missing > len(fresh):
            return self._split(tally)
        asked = fresh[: max(0, missing)]
        first = 0 if sending or tally.sent else 1
        return [*self._ask(tally, asked[:first], True), *self._ask(tally, asked[first:], False)]

    def _ask(self, tally: _Tally, trustees: list[int], send: bool) -> list[ReleaseAction]:
        tally.pending.update(dict.fromkeys(trustees, send))
        return [AskMasks(one, tally.portion.seeds, send) for one in trustees]

    def _split(self, tally: _Tally) -> list[ReleaseAction]:
        """Replace a portion, whose knowers do not suffice, by its single seeds, which more trustees know."""
        seeds = tally.portion.seeds
        if len(seeds) > 1:
            del self._tallies[seeds]
            everyone = range(self.committee.size)
            for seed in seeds:
                self._tallies[(seed,)] = _Tally(Portion((seed,), self.committee.knowers((seed,), everyone)))
            return []
        left = [one for one in tally.portion.knowers if one in self._willing() and one not in tally.votes]
        if tally.leading()[1] + len(left) <= self.committee.collude:
            return self._abort(f"too few trustees agree on the masks of seed {seeds[0]}")
        return []  # until a trustee returns
