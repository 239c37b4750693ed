"""Averages away noise: several messages of one site about the same rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from barnraise.data.batches import Rows
from barnraise.privacy.attacks.setting import AttackSetting
from barnraise.privacy.attacks.updates.tokens import EmbeddingTokens

ROUNDS = 32
"""Messages that the host averages: it asks for the same work from the same parameters, or waits for many versions."""

OTHERS = 4
"""Groups of other members that take part in turns."""


class Averaging(EmbeddingTokens):
    """Names the tokens of a victim from the mean of its messages in `ROUNDS` rounds.

    Fresh noise of deviation s in each message leaves s / sqrt(rounds) in the mean. In a sum the other members change
    from round to round and the victim stays.
    """

    def members(self, setting: AttackSetting) -> int:
        others = setting.protection.members - 1
        return 1 + others * OTHERS

    def view(self, setting: AttackSetting, members: Sequence[Rows], rng: np.random.Generator) -> Tensor:
        victim, *others = [setting.update(rows) for rows in members]
        size = setting.protection.members - 1
        mean = torch.zeros_like(victim)
        for _ in range(ROUNDS):
            beside = [others[place] for place in rng.permutation(len(others))[:size]]
            mean += setting.protection.seen([victim, *beside], rng)
        return mean / ROUNDS
