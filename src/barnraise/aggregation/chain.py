"""Chains of pre-aggregations and a rule as one rule, and rules whose attackers are a share of the updates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from .base import Array, Rule
from .catalog import CATALOG
from .context import Context, names_of
from .gram import mixed_gram
from .shares import Member, counted, fewest, shares_of


def build(members: Sequence[Member]) -> Rule:
    """Build the rule, or chain, of members with complete options.

    OptionError for combinations that never work.
    """
    fewest(members)
    if any(map(shares_of, members)):
        return ByShare(members)
    rules: list[Rule] = []
    for entry, options in members:
        rules.append(CATALOG.create(entry.name, **options))
        rules[-1].entry = entry  # which may need fewer than the catalog's
    return rules[0] if len(rules) == 1 else Chain(rules)


class ByShare(Rule):
    """A rule or chain that withstands a share of the updates: for each number of them it has a whole f."""

    name = "by_share"

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = list(members)
        self.options = {}
        self._alike = self.among(self.minimum)  # as for every number, in all properties that do not depend on f

    @property
    def weighted(self) -> bool:
        return self._alike.weighted

    @property
    def keeps(self) -> tuple[str, ...]:
        return self._alike.keeps

    @property
    def parts(self) -> Sequence[Member]:
        return self.members

    def among(self, num_updates: int) -> Rule:
        return build(counted(self.members, num_updates))


class Chain(Rule):
    """Applies `members` in order; all but the last prepare.

    The members' weights are multiplied in Gram space, so the mixed updates are never all in memory at once.
    """

    name = "chain"

    def __init__(self, members: Sequence[Rule]) -> None:
        self.members = list(members)
        self.options = {}
        self.uses_gram = any(member.uses_gram for member in members)

    @property
    def weighted(self) -> bool:
        return False  # a mixed row belongs to no single node

    @property
    def keeps(self) -> tuple[str, ...]:
        return tuple(name for member in self.members for name in member.keeps)

    @property
    def parts(self) -> Sequence[Member]:
        return [part for member in self.members for part in member.parts]

    def mix_knowing(self, gram: Array | None, shares: Array | None, context: Context) -> Array | None:
        """Mix by each member in turn: each gets the rows of those before it, and the vectors that it keeps itself."""
        num_rows, num_kept = len(context.nodes), len(context.kept)
        every = np.eye(num_rows + num_kept)  # the current rows, and the kept vectors, in terms of the given rows
        rows = context  # with the nodes of the current rows
        for member in self.members:
            own = _own(member, rows)
            places = [num_rows + place for place, name in enumerate(context.kept) if name in own.kept]
            seen = [*range(num_rows), *places]
            mixing = member.mix_knowing(None if gram is None else gram[np.ix_(seen, seen)], None, own)
            if mixing is None:
                continue
            whole = np.zeros((len(mixing) + num_kept, num_rows + num_kept))
            whole[: len(mixing), seen] = mixing
            whole[len(mixing) :, num_rows:] = np.eye(num_kept)
            gram = None if gram is None else mixed_gram(whole, gram)
            if len(mixing) != num_rows:
                rows = _merged(rows, mixing)
            every, num_rows = np.einsum("ij,jk->ik", whole, every), len(mixing)
        return every[:num_rows]

    def reduce(self, block: Array, out: Array) -> None:
        self.members[-1].reduce(block, out)

    def keep(self, context: Context, read: Callable[[int, Array], None], out: Array) -> None:
        for member in self.members:
            if member.keeps:
                member.keep(_own(member, context), read, out)

    def bound_kept(self, largest: Array, out: float) -> float:
        return max(member.bound_kept(largest, out) for member in self.members if member.keeps)

    def bound(self, largest: Array) -> float:
        return self.members[-1].bound(largest)


def _own(member: Rule, context: Context) -> Context:
    """Return a context with only the vectors that the member keeps.

    Where rows were merged, there is none for a node (`in_order`).
    """
    return replace(context, kept={name: context.kept[name] for name in names_of(member.keeps, context.nodes)})


def _merged(context: Context, mixing: Array) -> Context:
    """Return the context of the rows [m] that `mixing` [m, n+k] makes of those of `context` [n].

    Each has the names of all nodes that it is made of, and the age of the oldest.
    """
    parts = [np.flatnonzero(row[: len(context.nodes)]).tolist() for row in mixing]
    names = ["+".join(context.nodes[place] for place in places) for places in parts]
    return replace(context, nodes=names, ages=[max((context.ages[i] for i in places), default=0) for places in parts])
