"""MoNNA (Farhadkhani et al., 2023, "Robust Collaborative Learning with Linear Gradient Overhead", algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .base import Array, Rule
from .context import Context
from .gram import finite_rows, squared_distances


class NearestNeighbourAveraging(Rule):
    """The mean of the n-f updates nearest to a pivot p; of equally near ones the first.

    Needs n >= 2f+1. In the paper each node averages around its own momentum, which is honest. A server has none: p is
    the previous aggregate, 0 at first, which no attacker chose. No chosen update is farther from p than the farthest
    honest one, at R, so the mean is within 2fR/(n-f) of a mean of honest updates alone, whose quality depends on p: put
    `worker_momentum` in front, as the paper does. Only n distances are used, so f attackers that send about p are
    always chosen. An update that is not finite never is.

    >>> import torch
    >>> from barnraise import aggregation
    >>> rule = aggregation.create("monna", f=1)
    >>> rule(torch.tensor([[1.0], [2.0], [3.0], [1e8]])).tolist()
    [2.0]
    """

    name = "monna"
    uses_gram = True

    def __init__(self, f: int) -> None:
        super().__init__(f=f)
        self.f = f

    def mix_knowing(self, gram: Array | None, shares: Array | None, context: Context) -> Array | None:
        assert gram is not None
        n = len(gram) - 1  # the pivot is the last row
        nearest = np.argsort(squared_distances(gram)[n, :n], kind="stable")[: n - self.f]
        chosen = nearest[finite_rows(gram)[nearest]]
        weights = np.zeros((1, n + 1))
        weights[0, chosen] = 1.0 / max(len(chosen), 1)
        return weights

    def keep(self, context: Context, read: Callable[[int, Array], None], out: Array) -> None:
        context.kept["previous"][:] = out
