"""Pre-aggregations followed by a rule, as one rule."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .base import Array, Rule
from .gram import mixed_gram


class Chain(Rule):
    """Applies `members` in order; all but the last prepare (n updates for n).

    The members' weights are multiplied in Gram space, so the mixed updates are never all in memory at once.
    """

    name = "chain"

    def __init__(self, members: Sequence[Rule]) -> None:
        self.members = list(members)
        self.options = {}
        self.minimum = max(member.minimum for member in members)
        self.uses_gram = any(member.uses_gram for member in members)

    @property
    def weighted(self) -> bool:
        return False  # a mixed row belongs to no one

    def require(self, num_updates: int) -> None:
        for member in self.members:
            member.require(num_updates)

    def mix(self, gram: Array | None, shares: Array | None) -> Array | None:
        total: Array | None = None
        for member in self.members:
            mixing = member.mix(gram, None)
            if mixing is None:
                continue
            gram = None if gram is None else mixed_gram(mixing, gram)
            total = mixing if total is None else np.einsum("ij,jk->ik", mixing, total)
        return total

    def reduce(self, block: Array, out: Array) -> None:
        self.members[-1].reduce(block, out)

    def bound(self, largest: Array) -> float:
        return self.members[-1].bound(largest)
