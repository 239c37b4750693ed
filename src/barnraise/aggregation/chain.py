"""Pre-aggregations followed by a rule, as one rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from .base import Array, Rule
from .context import Context
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

    @property
    def keeps(self) -> tuple[str, ...]:
        return self.members[-1].keeps

    def require(self, num_updates: int) -> None:
        for member in self.members:
            member.require(num_updates)

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
