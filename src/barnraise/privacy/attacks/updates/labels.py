"""The labels of a victim's rows with their counts, from the output layer's update."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from barnraise.privacy.attacks.base import AttackTrial
from barnraise.privacy.attacks.setting import AttackSetting
from barnraise.privacy.attacks.updates.shadows import Array
from barnraise.privacy.attacks.updates.tokens import EmbeddingTokens, unexplained


class LabelCounts(EmbeddingTokens):
    """Counts how often each token is a label: the squared length of its row of the output layer's gradient.

    The row of token v is the sum over positions t of (p_t(v) - [v is the label of t]) h_t. The hidden states h_t of
    different positions have one length after the last norm and are nearly orthogonal, so a label that occurs n times
    has a row of n times the squared length (Wainakh et al. 2022, "LLG", use the sign and the sum in place of it).
    """

    def trial(self, setting: AttackSetting, rng: np.random.Generator) -> AttackTrial:
        members, seen = setting.group(rng)
        wanted = np.bincount(members[0][:, 1:].ravel(), minlength=setting.vocab_size)
        total = int(wanted.sum())
        strength = np.where(self.found(setting, seen), self.lengths(setting, seen) ** 2, 0.0)
        public = np.bincount(setting.public[:, 1:].ravel(), minlength=setting.vocab_size).astype(np.float64)
        return AttackTrial(overlap(apportioned(strength, total), wanted), overlap(apportioned(public, total), wanted))

    def lengths(self, setting: AttackSetting, seen: Tensor) -> Array:
        """Return the length of each token's own movement in the output layer: [vocabulary]."""
        name = self.anatomy.output or self.anatomy.embedding
        moved: Tensor = unexplained(setting.parts(seen)[name], setting.parts(setting.start)[name])
        found: Array = moved.to(torch.float64).numpy()
        return found


def apportioned(shares: Array, total: int) -> Array:
    """Return whole counts in proportion to `shares` that add up to `total`, by largest remainders.

    >>> apportioned(np.array([2.0, 1.0, 1.0]), 5).tolist()
    [3.0, 1.0, 1.0]
    """
    exact = shares * (total / max(float(shares.sum()), 1e-300))
    counts: Array = np.floor(exact)
    missing = total - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:missing]] += 1
    return counts


def overlap(found: Array, wanted: NDArray[Any]) -> float:
    """Return the share of labels that two multisets of one size have in common."""
    return float(np.minimum(found, wanted).sum() / wanted.sum())
