"""Nearest-neighbour mixing (Allouah et al., 2023, "Fixing by Mixing", algorithm 2)."""

from __future__ import annotations

import numpy as np

from .base import Array, Rule
from .gram import finite_rows, squared_distances


class NearestNeighbourMixing(Rule):
    """Replaces each update by the mean of its n-f nearest ones, itself included; of equally near ones the first.

    In front of a rule of robustness kappa it gives 8f/(n-f) (kappa + 1), which is order-optimal, and it makes sparse
    updates dense enough for coordinate-wise rules. The rule must be robust: an attacker's mixture holds its own update,
    so the mean behind nnm is as vulnerable as alone. An update that is not finite is replaced by a mean of finite ones.
    """

    name = "nnm"
    uses_gram = True

    def __init__(self, f: int) -> None:
        super().__init__(f=f)
        self.f = f

    def mix(self, gram: Array | None, shares: Array | None) -> Array | None:
        assert gram is not None
        finite = finite_rows(gram)
        distances = squared_distances(gram)
        distances[np.ix_(~finite, finite)] = 0.0
        num_nearest = len(gram) - self.f
        nearest = np.argsort(distances, axis=1, kind="stable")[:, :num_nearest]
        weights = np.zeros_like(distances)
        np.put_along_axis(weights, nearest, 1.0 / num_nearest, axis=1)
        return weights
