"""The committee of trustees: which of them know which seeds, and how they share the work of a release.

For m trustees of whom t may collude, an update has one seed for each t-subset of the trustees, known to every trustee
outside that subset. Any t colluding trustees miss the seed of their own subset. A seed is known to m - t trustees.

A list needs the signatures of ceil((m + t + 1) / 2) trustees: any two such sets share t + 1 trustees, one of them
honest, so two lists with a common assignment cannot both be signed. t + 1 trustees know all seeds; 2 t + 1 are needed,
so that each sum is computed by t + 1 of them: it counts once t + 1 trustees gave the same digest, and one is honest.
With m >= 3 t + 1 both hold while t trustees are silent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import comb

from barnraise.core.errors import InputError

MOST_SEEDS = 128
"""Seeds of one update; a payload has 32 bytes for each, and 32 more for each trustee that knows it."""


@dataclass(frozen=True)
class TrusteeKeys:
    """A trustee by its node's name, with its public keys in 64 hexadecimal digits: Ed25519 and X25519."""

    name: str
    signer: str
    sealing: str


@dataclass(frozen=True)
class Portion:
    """A part of the seeds that the same trustees expand.

    `seeds` are numbers of seeds. `knowers` are numbers of the trustees that know all of them, in the order in which
    they are asked.
    """

    seeds: tuple[int, ...]
    knowers: tuple[int, ...]


@dataclass(frozen=True)
class Committee:
    """The trustees of a run, in a fixed order, and how many of them may collude.

    Raises InputError for a committee that cannot hold.
    """

    trustees: tuple[TrusteeKeys, ...]
    collude: int

    def __post_init__(self) -> None:
        m, t = len(self.trustees), self.collude
        if t < 1:
            raise InputError(f"masks: {t} trustees may collude, must be at least 1; name at least 4 trustees")
        if m < 3 * t + 1:
            raise InputError(
                f"masks: {m} trustees of whom {t} may collude, must be at least {3 * t + 1} (3 t + 1); "
                f"name {3 * t + 1 - m} more" + (f", or let at most {(m - 1) // 3} collude" if m >= 4 else "")
            )
        if comb(m, t) > MOST_SEEDS:
            raise InputError(
                f"masks: {m} trustees of whom {t} may collude need {comb(m, t)} seeds an update, at most {MOST_SEEDS}; "
                "name fewer trustees, or let fewer collude"
            )
        for what in ("name", "signer", "sealing"):
            values = [getattr(one, what) for one in self.trustees]
            if len(set(values)) < m:
                twice = next(value for value in values if values.count(value) > 1)
                raise InputError(f"masks: two trustees have the {what} {twice}; each needs its own")

    @property
    def size(self) -> int:
        """Return m, the number of trustees."""
        return len(self.trustees)

    @cached_property
    def subsets(self) -> tuple[tuple[int, ...], ...]:
        """Return the t-subsets of the trustees' numbers in lexicographic order; a seed has the number of its subset."""
        return tuple(combinations(range(self.size), self.collude))

    @cached_property
    def known(self) -> tuple[tuple[int, ...], ...]:
        """Return the seeds that each trustee knows, by the trustee's number."""
        numbered = tuple(enumerate(self.subsets))
        return tuple(tuple(s for s, subset in numbered if one not in subset) for one in range(self.size))

    @property
    def num_known(self) -> int:
        """Return how many seeds of an update a trustee knows."""
        return comb(self.size - 1, self.collude)

    @property
    def quorum(self) -> int:
        """Return how many trustees must sign a list."""
        return -(-(self.size + self.collude + 1) // 2)

    @property
    def least_answering(self) -> int:
        """Return how many trustees must answer, so that t + 1 of them can compute each sum."""
        return 2 * self.collude + 1

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of the trustees' names and keys, for people to compare."""
        parts = [str(self.collude), *(text for one in self.trustees for text in (one.name, one.signer, one.sealing))]
        encoded = (part.encode() for part in parts)
        return hashlib.sha256(b"".join(len(part).to_bytes(4, "big") + part for part in encoded)).hexdigest()

    def number(self, name: str) -> int | None:
        """Return the number of the trustee with this name, or None."""
        return next((number for number, one in enumerate(self.trustees) if one.name == name), None)

    def knowers(self, seeds: Sequence[int], among: Sequence[int]) -> tuple[int, ...]:
        """Return the trustees `among` these that know all of `seeds`."""
        without = {one for seed in seeds for one in self.subsets[seed]}
        return tuple(one for one in among if one not in without)

    def portions(self, answering: Sequence[int]) -> tuple[Portion, ...]:
        """Return portions that hold each seed once, each with at least t + 1 knowers among `answering`.

        A portion belongs to t + 1 trustees, of which each sends a sum for it: few portions are few bytes. The trustees
        expand about as many seeds each. InputError for fewer than 2 t + 1.
        """
        if len(answering) < self.least_answering:
            raise InputError(f"masks: {len(answering)} trustees answer, at least {self.least_answering} must")
        held: dict[tuple[int, ...], list[int]] = {team: [] for team in self._teams(answering)}
        for seed, subset in enumerate(self.subsets):
            knowing = [team for team in held if not set(team) & set(subset)]
            held[min(knowing, key=lambda team: len(held[team]))].append(seed)
        found = []
        for team, seeds in held.items():
            others = (one for one in self.knowers(seeds, answering) if one not in team)
            found.append(Portion(tuple(seeds), (*team, *others)))
        return tuple(one for one in found if one.seeds)

    def _teams(self, answering: Sequence[int]) -> list[tuple[int, ...]]:
        """Return teams of t + 1 trustees, so that each seed is known to a whole team.

        More than t teams without a common trustee suffice, as t trustees are in t of them at most. Where there are
        fewer, the next team is the one that knows the most seeds that no team before it knows.
        """
        width, n = self.collude + 1, len(answering)
        if n // width >= width:
            return [tuple(answering[start : start + width]) for start in range(0, n - width + 1, width)]
        every, teams = list(combinations(answering, width)), list[tuple[int, ...]]()
        left, times = [set(subset) for subset in self.subsets], dict.fromkeys(answering, 0)
        while left:
            new = {team: sum(subset.isdisjoint(team) for subset in left) for team in every}
            team = max(every, key=lambda team: (new[team], -sum(times[one] for one in team)))
            teams.append(team)
            left = [subset for subset in left if not subset.isdisjoint(team)]
            for one in team:
                times[one] += 1
        return teams
