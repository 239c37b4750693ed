"""The geometric median (Pillutla et al., 2022, "Robust Aggregation for Federated Learning", algorithm 2)."""

from __future__ import annotations

import numpy as np

from .base import Array, Rule
from .gram import finite_rows, squared_distances

_SMOOTHING = 1e-6  # nu, as a share of the least median distance: smaller distances count as this
_SETTLED = 1e-12  # change of the weights below which the iteration ends


class GeometricMedian(Rule):
    """Finds argmin_v sum_i ||x_i - v|| by at most `iterations` of the smoothed Weiszfeld algorithm.

    v <- sum_i beta_i x_i / sum_i beta_i with beta_i = 1 / max(nu, ||x_i - v||). v begins as the mean of the updates
    weighted by one over their median distances to the others, so that a far one has little effect. An attacker counts
    as a direction alone: with f < n/2 of them v is within 2 (n-f)/(n-2f) times the largest distance of an honest update
    from the honest mean, and kappa = 4 (1 + f/(n-2f))^2. An update that is not finite is left out.

    >>> import torch
    >>> rule = GeometricMedian(iterations=100)
    >>> rule(torch.tensor([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [-4e8, 3.0]])).tolist()
    [1.0, 2.0]
    """

    name = "geometric_median"
    uses_gram = True

    def __init__(self, iterations: int) -> None:
        super().__init__(iterations=iterations)
        self.iterations = iterations

    def mix(self, gram: Array | None, shares: Array | None) -> Array | None:
        assert gram is not None
        finite, weights = finite_rows(gram), np.zeros((1, len(gram)))
        if finite.any():
            weights[0, finite] = weiszfeld(gram[np.ix_(finite, finite)], self.iterations)
        return weights


def weiszfeld(gram: Array, iterations: int) -> Array:
    """Return the weights [n], summing to 1, of n finite updates in their geometric median."""
    middle = np.median(np.sqrt(squared_distances(gram)), axis=1)
    least = float(middle.min())
    if not least:  # more than half are equal, and are the median
        same: Array = (middle == 0) / np.count_nonzero(middle == 0)
        return same
    weights = _shares(middle)
    for _ in range(iterations):
        # not from distances, which lose honest rows beside one of 1e30
        products = np.einsum("ij,j->i", gram, weights)
        squares = np.diagonal(gram) - 2 * products + np.einsum("i,i->", products, weights)
        before, weights = weights, _shares(np.maximum(np.sqrt(np.maximum(squares, 0.0)), _SMOOTHING * least))
        if np.abs(weights - before).max() <= _SETTLED:
            break
    return weights


def _shares(distances: Array) -> Array:
    closeness = 1.0 / distances
    shares: Array = closeness / closeness.sum()
    return shares
