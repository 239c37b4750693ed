"""Pre-aggregations followed by a rule, as one rule; and a rule or chain whose attackers are a share of the updates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from .base import Array, Rule
from .catalog import CATALOG
from .context import Context
from .gram import mixed_gram
from .shares import Member, counted, fewest, shares_of


def build(members: Sequence[Member]) -> Rule:
    """The rule, or chain, of these members, which have all their options."""
    if any(map(shares_of, members)):
        return ByShare(members)
    rules: list[Rule] = [CATALOG.create(entry.name, **options) for entry, options in members]
    return rules[0] if len(rules) == 1 else Chain(rules)


class ByShare(Rule):
    """A rule or chain that withstands a share of the updates: for each number of them it is one with a whole f."""

    name = "by_share"

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = list(members)
        self.options = {}
        self.minimum = fewest(members)
        self._alike = self.among(self.minimum)  # as all of them in what does not hang on f

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
        self.minimum = fewest(self.parts)
        self.uses_gram = any(member.uses_gram for member in members)

    @property
    def weighted(self) -> bool:
        return False  # a mixed row belongs to no one

    @property
    def keeps(self) -> tuple[str, ...]:
        return self.members[-1].keeps

    @property
    def parts(self) -> Sequence[Member]:
        return [part for member in self.members for part in member.parts]

    def mix_knowing(self, gram: Array | None, shares: Array | None, context: Context) -> Array | None:
        """Those that prepare see the updates alone; what the last one keeps goes past them."""
        total: Array | None = None
        for member in self.members:
            past = 0 if member.keeps else len(context.kept)
            seen = gram if gram is None or not past else gram[:-past, :-past]
            mixing = member.mix_knowing(seen, None, context)
            if mixing is None:
                continue
            if past:
                beside, below = np.zeros((len(mixing), past)), np.zeros((past, mixing.shape[1]))
                mixing = np.block([[mixing, beside], [below, np.eye(past)]])
            gram = None if gram is None else mixed_gram(mixing, gram)
            total = mixing if total is None else np.einsum("ij,jk->ik", mixing, total)
        return total

    def reduce(self, block: Array, out: Array) -> None:
        self.members[-1].reduce(block, out)

    def keep(self, kept: Mapping[str, Array], read: Callable[[int, Array], None], out: Array) -> None:
        self.members[-1].keep(kept, read, out)

    def bound_kept(self, largest: Array, out: float) -> float:
        return self.members[-1].bound_kept(largest, out)

    def bound(self, largest: Array) -> float:
        return self.members[-1].bound(largest)
