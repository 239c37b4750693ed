"""Which tokens are present, by a classifier that the adversary trains on updates of public rows.

The adversary simulates the victim: it trains on public rows, passes the update through the same protection, and learns
how much the features of a token that occurs differ from those of others. Without a signal, only the token's frequency
in public rows remains, so the attack is never much worse than the prior (Shokri et al. 2017, "shadow models").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

NEWTON_STEPS = 25
RIDGE = 1e-2

CLEAR_GAP = 8.0
"""The factor between two neighbouring strengths that needs no classifier: what is above it is a signal."""


@dataclass(frozen=True)
class TokenClassifier:
    """A logistic regression of features [tokens, k], and the probability from which on a token counts as present."""

    weights: Array
    threshold: float

    @classmethod
    def fit(cls, features: Sequence[Array], present: Sequence[NDArray[np.bool_]]) -> TokenClassifier:
        """Fit it to the tokens of several updates, and choose the threshold with the largest mean F1 on them."""
        inputs, wanted = _with_one(np.concatenate(features)), np.concatenate(present)
        weights = np.zeros(inputs.shape[1])
        for _ in range(NEWTON_STEPS):
            chance = _logistic(inputs @ weights)
            slope = inputs.T @ (wanted - chance) - RIDGE * weights
            curve = (inputs * (chance * (1.0 - chance))[:, None]).T @ inputs + RIDGE * np.eye(len(weights))
            step = np.linalg.solve(curve, slope)
            weights = weights + step * min(1.0, 4.0 / (float(np.abs(step).max()) + 1e-12))
        chances = [_logistic(_with_one(one) @ weights) for one in features]
        candidates = np.unique(np.quantile(np.concatenate(chances), 1.0 - np.geomspace(1e-4, 0.5, 60)))
        scores = [
            np.mean([f1(one >= limit, truth) for one, truth in zip(chances, present, strict=True)])
            for limit in candidates
        ]
        best = np.flatnonzero(np.isclose(scores, np.max(scores)))
        return cls(weights, float(candidates[best[len(best) // 2]]))

    def present(self, features: Array) -> NDArray[np.bool_]:
        """Return which tokens are present, by their features."""
        found: NDArray[np.bool_] = _logistic(_with_one(features) @ self.weights) >= self.threshold
        return found


def clear(strength: Array, count: float) -> NDArray[np.bool_] | None:
    """Return the tokens above the widest gap of the strengths, if it is a factor of `CLEAR_GAP` or more.

    The gap is looked for where it would leave a quarter of `count` to four times `count` tokens; None without one.
    """
    logs = np.log(np.maximum(strength, float(strength.max()) * 1e-9 + 1e-30))
    order = np.argsort(-logs, kind="stable")
    low, high = max(1, int(count / 4)), min(len(logs) - 1, int(4 * count))
    gaps = logs[order[low - 1 : high]] - logs[order[low : high + 1]]
    if not gaps.size or gaps.max() < np.log(CLEAR_GAP):
        return None
    found = np.zeros(len(logs), bool)
    found[order[: low + int(gaps.argmax())]] = True
    return found


def standardised(values: Array) -> Array:
    """Return the logarithm of values that are at least 0, with mean 0 and deviation 1 over the tokens: [tokens, 1]."""
    logs = np.log(np.maximum(values, float(values.max()) * 1e-9 + 1e-30))
    found: Array = ((logs - logs.mean()) / (logs.std() + 1e-9))[:, None]
    return found


def f1(found: NDArray[np.bool_], present: NDArray[np.bool_]) -> float:
    """Return the harmonic mean of precision and recall.

    >>> round(f1(np.array([True, True, True, False, False]), np.array([False, True, True, True, True])), 3)
    0.571
    """
    return 2.0 * float((found & present).sum()) / max(1.0, float(found.sum() + present.sum()))


def _with_one(features: Array) -> Array:
    return np.concatenate([features, np.ones((len(features), 1))], axis=1)


def _logistic(values: Array) -> Array:
    found: Array = 1.0 / (1.0 + np.exp(-np.clip(values, -40.0, 40.0)))
    return found
