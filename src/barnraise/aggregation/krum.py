"""Krum and Multi-Krum (Blanchard et al., 2017, "Machine Learning with Adversaries", section 4)."""

from __future__ import annotations

import numpy as np

from .base import Array, Rule
from .gram import squared_distances


def krum_scores(distances: Array, f: int) -> Array:
    """Return for each of n updates the sum of its n-f-2 smallest squared distances to others, at least one.

    `distances` [n, n] as by `squared_distances`. The score of an update that is not finite is infinite.
    """
    n = len(distances)
    nearest = np.sort(distances, axis=1)[:, 1 : max(n - f - 2, 1) + 1]  # the first is the distance to itself
    scores: Array = nearest.sum(axis=1)
    return scores


class Krum(Rule):
    """The one update with the lowest score; of equal ones the first.

    Needs n >= 2f+3; kappa = 6 (1 + f/(n-2f)). It discards n-1 honest updates: prefer Multi-Krum or nnm in front.
    """

    name = "krum"
    uses_gram = True

    def __init__(self, f: int) -> None:
        super().__init__(f=f)
        self.f = f

    def mix(self, gram: Array | None, shares: Array | None) -> Array | None:
        assert gram is not None
        weights = np.zeros((1, len(gram)))
        weights[0, np.argmin(krum_scores(squared_distances(gram), self.f))] = 1.0
        return weights


class MultiKrum(Rule):
    """The mean of the n-f updates with the lowest scores; of equal ones the first.

    Needs n >= 2f+3.
    """

    name = "multi_krum"
    uses_gram = True

    def __init__(self, f: int) -> None:
        super().__init__(f=f)
        self.f = f

    def mix(self, gram: Array | None, shares: Array | None) -> Array | None:
        assert gram is not None
        num_chosen = len(gram) - self.f
        chosen = np.argsort(krum_scores(squared_distances(gram), self.f), kind="stable")[:num_chosen]
        weights = np.zeros((1, len(gram)))
        weights[0, chosen] = 1.0 / num_chosen
        return weights
