"""Norm clipping (Sun et al., 2019, "Can You Really Backdoor Federated Learning?") to the median norm."""

from __future__ import annotations

import numpy as np

from .base import Array, Rule
from .gram import finite_rows


class ClipMedian(Rule):
    """Scales each update x_i by min(1, C / ||x_i||), where C is the median of the norms.

    C follows the training, and while more than half of the updates are honest it lies among their norms, so no result
    is longer than an honest update. It bounds an attacker's effect, and does not identify attackers: put a robust rule
    behind it. An update that is not finite counts as 0.

    >>> import torch
    >>> from barnraise import aggregation
    >>> rule = aggregation.create(["clip_median", "mean"])
    >>> rule(torch.tensor([[3.0, 4.0], [3.0, 4.0], [0.0, -5 * 2.0**27]])).tolist()
    [2.0, 1.0]
    """

    name = "clip_median"
    uses_gram = True

    def mix(self, gram: Array | None, shares: Array | None) -> Array | None:
        assert gram is not None
        lengths = norms(gram)
        finite = lengths[np.isfinite(lengths)]
        return shortening(lengths, float(np.median(finite)) if finite.size else 0.0)


def norms(gram: Array) -> Array:
    """Return ||x_i|| [n], infinite where x_i is not finite."""
    squares = np.where(finite_rows(gram), np.diagonal(gram), np.inf)
    lengths: Array = np.sqrt(squares)
    return lengths


def shortening(lengths: Array, most: float) -> Array:
    """Return weights [n, n] that shorten updates of these lengths to `most`; those of infinite length become 0."""
    factors = np.divide(most, lengths, out=np.ones_like(lengths), where=lengths > most)
    return np.diag(np.where(np.isfinite(lengths), factors, 0.0))
