"""Reconstructions of a victim's rows: the score of candidates, and the control that attacks on text share."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from barnraise.data.batches import Rows
from barnraise.privacy.attacks.anatomy import Anatomy
from barnraise.privacy.attacks.base import AttackTrial, PrivacyAttack
from barnraise.privacy.attacks.setting import AttackSetting


class TextAttack(PrivacyAttack):
    """Base class of attacks that reconstruct rows, token by token.

    The control is the same reconstruction, compared with the rows of another site that it saw nothing of.
    """

    def prepare(self, setting: AttackSetting, rng: np.random.Generator) -> None:
        self.anatomy = Anatomy.of(setting.module(), setting.layout)

    def trial(self, setting: AttackSetting, rng: np.random.Generator) -> AttackTrial:
        members, seen = setting.group(rng)
        other = setting.draw(rng)[0]
        found = self.reconstruct(setting, seen, rng)
        return AttackTrial(accuracy(found, members[0]), accuracy(found, other))

    @abstractmethod
    def reconstruct(self, setting: AttackSetting, seen: Tensor, rng: np.random.Generator) -> Rows:
        """Return candidates for the rows, int64 [candidates, length], from the vector that the adversary sees."""


def accuracy(found: Rows, rows: Rows) -> float:
    """Return the share of tokens at their places, over the best assignment of candidates to rows."""
    alike = (found[None, :, :] == rows[:, None, :]).mean(2)
    chosen = linear_sum_assignment(-alike)
    return float(alike[chosen].sum() / len(rows))
