"""The state machine of the vetting of a list's entries on the controller's side, before the list is fixed.

    asked -> chosen | aborted

A trustee that is asked names the entries that it would refuse. Once a quorum accepts all entries, they are chosen: the
same quorum will endorse the list. Otherwise the machine waits for all reachable trustees, and chooses by what they said
(`choosing`). Nothing is bound by it and nothing of it is durable: after a restart the controller asks again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from .choosing import Chosen, choose
from .committee import Committee
from .release import ListAborted


@dataclass(frozen=True)
class AskVerdict:
    """An action: ask the trustee which entries it refuses."""

    trustee: int


@dataclass(frozen=True)
class EntriesChosen:
    """An action: make the list of the chosen entries."""

    chosen: Chosen


VettingAction: TypeAlias = AskVerdict | EntriesChosen | ListAborted


class VettingMachine:
    """The machine of one draft of a list, with these `assignments`; `reachable` trustees are connected.

    Each method returns the actions that follow, in order.
    """

    def __init__(self, committee: Committee, assignments: Collection[int], reachable: Iterable[int]) -> None:
        self.committee, self.assignments = committee, tuple(assignments)
        self.refused_entries: dict[int, frozenset[int]] = {}
        self.unlisted_entries: dict[int, frozenset[int]] = {}
        self.refusals: dict[int, str] = {}
        self._reachable = set(reachable)
        self._over = False

    @property
    def lacking(self) -> int:
        """Return how many more trustees must answer, at least."""
        return max(0, self.committee.quorum - len(self.refused_entries))

    def start(self) -> list[VettingAction]:
        """Ask all reachable trustees."""
        return [AskVerdict(one) for one in sorted(self._reachable)]

    def vetted(self, trustee: int, refused: Collection[int], unlisted: Collection[int] = ()) -> list[VettingAction]:
        """Take the entries that a trustee refuses, and those whose nodes are not on its roster."""
        if not self._over and trustee not in self.refusals:
            mine = frozenset(self.assignments)
            self.refused_entries.setdefault(trustee, frozenset([*refused, *unlisted]) & mine)
            self.unlisted_entries.setdefault(trustee, (frozenset(unlisted) - frozenset(refused)) & mine)
        return self._advance()

    def refused(self, trustee: int, reason: str) -> list[VettingAction]:
        """Note that a trustee refuses the list as a whole, or sent an answer that is none."""
        if trustee not in self.refused_entries:
            self.refusals.setdefault(trustee, reason)
        return self._advance()

    def vanished(self, trustee: int) -> list[VettingAction]:
        """Note that a trustee is not connected."""
        self._reachable.discard(trustee)
        return self._advance()

    def returned(self, trustee: int) -> list[VettingAction]:
        """Note that a trustee is connected again."""
        again = trustee not in self._reachable and trustee not in self.refused_entries.keys() | self.refusals.keys()
        self._reachable.add(trustee)
        return [*([AskVerdict(trustee)] if again and not self._over else []), *self._advance()]

    def hurry(self) -> list[VettingAction]:
        """Choose by the answers that are there, if a quorum answered: silent trustees are not waited for."""
        return self._advance(wait=False)

    def _advance(self, *, wait: bool = True) -> list[VettingAction]:
        """Return what is next after any event."""
        if self._over:
            return []
        least, answers = self.committee.quorum, self.refused_entries
        if (left := self.committee.size - len(self.refusals)) < least:
            self._over = True
            return [ListAborted(f"{left} trustees are left, {least} must sign", ())]
        if len(answers) < least:
            return []
        clean = sum(not entries for entries in answers.values())
        if clean < least and wait and self._reachable - answers.keys() - self.refusals.keys():
            return []
        self._over = True
        if clean >= least:
            return [EntriesChosen(Chosen(tuple(sorted(self.assignments)), (), tuple(sorted(answers))))]
        return [EntriesChosen(choose(self.committee, self.assignments, answers, self.unlisted_entries))]
