"""Adaptive robust clipping (Allouah et al., 2025, "Adaptive Gradient Clipping for Robust Federated Learning")."""

from __future__ import annotations

import numpy as np

from .base import Array, Rule
from .clip_median import norms, shortening


class AdaptiveRobustClipping(Rule):
    """Scales the k = floor(2 f/n (n-f)) longest of n updates to the norm of the next longest.

    k >= f, so no resulting update is longer than an honest one, and for few attackers k is less than the half that
    `clip_median` shortens. In front of a rule of robustness kappa the chain is as robust, up to 2f/(n-2f). An update
    that is not finite counts as 0. Needs n >= 2f+1.

    >>> import torch
    >>> from barnraise import aggregation
    >>> rule = aggregation.create(["arc", "mean"], f=1)
    >>> rule(torch.tensor([[4.0], [4.0], [6.0], [2.0**27]])).tolist()
    [5.0]
    """

    name = "arc"
    uses_gram = True

    def __init__(self, f: int) -> None:
        super().__init__(f=f)
        self.f = f

    def mix(self, gram: Array | None, shares: Array | None) -> Array | None:
        assert gram is not None
        lengths, n = norms(gram), len(gram)
        num_clipped = 2 * self.f * (n - self.f) // n
        return shortening(lengths, float(np.sort(lengths)[-1 - num_clipped]))
