"""Subtracts sums of overlapping lists: what the first has more than the second is one member's update."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from barnraise.data.batches import Rows
from barnraise.privacy.attacks.setting import AttackSetting
from barnraise.privacy.attacks.updates.tokens import EmbeddingTokens

FEWEST = 4
"""Members of a buffer where the protection names no group."""


class BufferDifference(EmbeddingTokens):
    """Names the tokens of a victim from the sum of a list with it, less the sum of the same list without it.

    Where the second sum is withheld, since its members were opened in another list, the first sum is all that there is.
    """

    def members(self, setting: AttackSetting) -> int:
        return max(FEWEST, setting.protection.members)

    def view(self, setting: AttackSetting, members: Sequence[Rows], rng: np.random.Generator) -> Tensor:
        updates, everyone = [setting.update(rows) for rows in members], range(len(members))
        whole, rest = setting.protection.sums(updates, [everyone, everyone[1:]], rng)
        assert whole is not None
        return whole if rest is None else whole - rest
