"""Worker momentum (Karimireddy et al., 2021, "Learning from History for Byzantine Robust Optimization", section 5)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .base import Array, Rule
from .context import Context, names_of

_MOST = 1e30  # largest magnitude of a kept element, so that sums of attackers' elements stay finite


class WorkerMomentum(Rule):
    """Replaces the update x_i of node i by its momentum m_i <- (1 - beta) x_i + beta m_i, which starts as x_i.

    An attack that hides in the noise of single updates and is small adds up from version to version; the noise of a
    momentum is smaller by sqrt((1-beta) / (1+beta)), which leaves less to hide in. In the paper workers keep it; kept
    here, no attacker can choose a momentum that its updates do not have, workers may come and go, and stale updates
    count as well. An element that is not finite leaves the momentum as it is.

    >>> import torch
    >>> from barnraise import aggregation
    >>> from barnraise.aggregation.context import Context
    >>> rule = aggregation.create(["worker_momentum", "mean"], beta=0.5)
    >>> context = Context.first(rule.keeps, 2, 1, np.dtype(np.float32))
    >>> [rule(torch.full((2, 1), x), context=context).item() for x in (1.0, 2.0, 4.0)]
    [1.0, 1.5, 2.75]
    """

    name = "worker_momentum"

    def __init__(self, beta: float) -> None:
        super().__init__(beta=beta)
        self.beta = beta

    def mix_knowing(self, gram: Array | None, shares: Array | None, context: Context) -> Array | None:
        n, places = len(context.nodes), {name: place for place, name in enumerate(context.kept)}
        weights = np.eye(n, n + len(places))
        for row, name in enumerate(self._names(context)):
            if name not in context.fresh:
                weights[row, row], weights[row, n + places[name]] = 1 - self.beta, self.beta
        return weights

    def keep(self, context: Context, read: Callable[[int, Array], None], out: Array) -> None:
        for row, name in enumerate(self._names(context)):
            momentum = context.kept[name]
            update = np.empty_like(momentum)
            read(row, update)
            np.copyto(update, momentum, where=~np.isfinite(update))
            np.clip(update, -_MOST, _MOST, out=update)
            if name not in context.fresh:
                update *= momentum.dtype.type(1 - self.beta)
                momentum *= momentum.dtype.type(self.beta)
                update += momentum
            momentum[:] = update

    def bound_kept(self, largest: Array, out: float) -> float:
        return min(float(largest.max()), 1.01 * _MOST)

    def _names(self, context: Context) -> list[str]:
        return [name for node in context.nodes for name in names_of(self.keeps, [node])]
