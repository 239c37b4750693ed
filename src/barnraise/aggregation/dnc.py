"""A variant of DnC, divide and conquer (Shejwalkar and Houmansadr, 2021, "Manipulating the Byzantine", algorithm 2)."""

from __future__ import annotations

import numpy as np

from .base import Array, Rule
from .gram import finite_rows

_STEPS = 100  # steps of the power method
_SETTLED = 1e-12


class DivideAndConquer(Rule):
    """The mean of the n-f updates that deviate least along the direction of largest variance.

    The score of x_i is (u . (x_i - mu))^2, with mu the mean and u the top right singular vector of the rows x_i - mu.

    Two things differ from the paper's algorithm. It takes some of the coordinates, several times; here inner products
    give the scores of all coordinates at no more cost. It leaves out the c f highest scores of one direction at once,
    where one far update hides the others; here the highest is removed, mu and u are computed again, and that is
    repeated f times (c = 1). The paper's figures are therefore not this rule's.

    As all differences from mu add up to 0, f far updates of n >= 2f+1 always hold the highest score, so they are
    removed. Non-finite updates are removed before; of equal scores the first.

    >>> import torch
    >>> DivideAndConquer(f=1)(torch.tensor([[1.0], [2.0], [3.0], [1e8]])).tolist()
    [2.0]
    """

    name = "dnc"
    uses_gram = True

    def __init__(self, f: int) -> None:
        super().__init__(f=f)
        self.f = f

    def mix(self, gram: Array | None, shares: Array | None) -> Array | None:
        assert gram is not None
        remaining = np.flatnonzero(finite_rows(gram)).tolist()
        while len(remaining) > len(gram) - self.f:
            remaining.pop(int(np.argmax(outlier_scores(gram[np.ix_(remaining, remaining)]))))
        weights = np.zeros((1, len(gram)))
        weights[0, remaining] = 1.0 / max(len(remaining), 1)
        return weights


def outlier_scores(gram: Array) -> Array:
    """Return the scores (u . (x_i - mu))^2 [n], as shares of their sum."""
    means = gram.mean(axis=1)
    centred = gram - means[:, None] - means[None, :] + means.mean()
    largest = float(np.diagonal(centred).max())
    if largest <= 0:
        return np.zeros(len(gram))
    centred = centred / largest
    vector = centred[int(np.argmax(np.diagonal(centred)))]
    for _ in range(_STEPS):  # sums in one order, where the library's depend on the number of threads
        before, vector = vector, np.einsum("ij,j->i", centred, vector)
        vector = vector / np.sqrt(np.einsum("i,i->", vector, vector))
        if np.abs(vector - before).max() <= _SETTLED:
            break
    scores: Array = vector * vector
    return scores
