"""Centered clipping (Karimireddy et al., 2021, "Learning from History for Byzantine Robust Optimization", alg. 2)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .base import Array, Rule
from .context import Context
from .gram import finite_rows


class CenteredClipping(Rule):
    """Repeats v <- v + 1/n sum_i (x_i - v) min(1, tau / ||x_i - v||) for a number of `iterations`.

    v begins as the previous aggregate, 0 at first, so an attacker can add at most tau/n to it, whatever it sends, and
    honest updates need not be alike but only near the previous aggregate. Without a tau it is the median distance from
    v of the updates, which adapts to the learning rate; an attacker cannot move it out of the distances of honest nodes
    while these are more than half. An update that is not finite counts as v.

    >>> import torch
    >>> rule = CenteredClipping(tau=1.0, iterations=1)
    >>> rule(torch.tensor([[0.5], [0.5], [1.5], [-4e8]])).tolist()
    [0.25]
    """

    name = "centered_clipping"
    uses_gram = True

    def __init__(self, tau: float | None, iterations: int) -> None:
        super().__init__(tau=tau, iterations=iterations)
        self.tau, self.iterations = tau, iterations

    def mix_knowing(self, gram: Array | None, shares: Array | None, context: Context) -> Array | None:
        assert gram is not None
        n, finite = len(gram) - 1, finite_rows(gram)
        gram = np.where(np.outer(finite, finite), gram, 0.0)
        finite = finite[:n]
        weights = np.zeros(n + 1)  # weights of the rows in v; the previous aggregate is the last
        weights[n] = 1.0
        for _ in range(self.iterations):
            products = np.einsum("ij,j->i", gram, weights)
            squares = np.diagonal(gram)[:n] - 2 * products[:n] + np.einsum("i,i->", products, weights)
            distances = np.sqrt(np.maximum(squares, 0.0))
            tau = self.tau if self.tau is not None else float(np.median(distances[finite])) if finite.any() else 0.0
            factors = np.divide(tau, distances, out=np.ones(n), where=distances > tau)
            clipped = factors * finite / n
            weights *= 1.0 - clipped.sum()
            weights[:n] += clipped
        return weights[None]

    def keep(self, context: Context, read: Callable[[int, Array], None], out: Array) -> None:
        context.kept["previous"][:] = out
