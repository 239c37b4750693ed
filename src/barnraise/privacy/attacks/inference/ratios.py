"""Tests of membership from losses: Gaussian likelihood ratios of shadow models, and their curve of errors.

A confidence is minus the mean loss of a row's tokens, so it is larger where the model knows the row.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Confidences = NDArray[np.float64]

FEWEST_OF_A_KIND = 32
"""Shadow models of a kind below which all targets share one variance (Carlini et al. 2022, section VI-C)."""

LEAST_VARIANCE = 1e-12


def halves(targets: int, models: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Draw which model is trained on which target: bool [targets, models], half of the models for each target."""
    ordered = np.arange(models) < models // 2
    return np.stack([rng.permutation(ordered) for _ in range(targets)])


def online(seen: Confidences, shadows: Confidences, member: NDArray[np.bool_]) -> Confidences:
    """Return the logarithm of the likelihood ratio of "member" to "no member" for each target, [targets].

    `seen` [targets] are confidences of the attacked model, `shadows` [targets, models] those of shadow models, and
    `member` says which were trained on the target. Carlini et al. 2022, "Membership inference attacks from first
    principles", algorithm 1:

        log N(seen; mean_in, var_in) - log N(seen; mean_out, var_out)
    """
    mean_in, var_in = _fitted(shadows, member)
    mean_out, var_out = _fitted(shadows, ~member)
    return _log_density(seen, mean_in, var_in) - _log_density(seen, mean_out, var_out)


def offline(seen: Confidences, shadows: Confidences, member: NDArray[np.bool_]) -> Confidences:
    """Return how far each target's confidence exceeds that of models without it, in standard deviations.

    Carlini et al. 2022, equation 4: a one-sided test with "out" models alone, which need not know the target.
    """
    mean, variance = _fitted(shadows, ~member)
    return (seen - mean) / np.sqrt(variance)


def loss_threshold(seen: Confidences, shadows: Confidences, member: NDArray[np.bool_]) -> Confidences:
    """Return how far each confidence exceeds one threshold for all targets, the mean of shadow models' two means.

    Yeom et al. 2018, "Privacy risk in machine learning", adversary 2.
    """
    threshold = float(shadows[member].mean() + shadows[~member].mean()) / 2.0
    return seen - threshold


def auc(statistics: Confidences, member: NDArray[np.bool_]) -> float:
    """Return the area under the ROC curve: the chance that a member's statistic exceeds that of a row that is none.

    Ties count half.
    """
    inside, outside = statistics[member], statistics[~member]
    larger = (inside[:, None] > outside).mean() + 0.5 * (inside[:, None] == outside).mean()
    return float(larger)


def true_positives(statistics: Confidences, member: NDArray[np.bool_], false_positives: float) -> float:
    """Return the share of members found at the lowest threshold with at most this share of false positives."""
    outside = np.sort(statistics[~member])[::-1]
    allowed = int(false_positives * len(outside))
    threshold = outside[allowed] if allowed < len(outside) else -np.inf
    return float((statistics[member] > threshold).mean())


def _fitted(shadows: Confidences, chosen: NDArray[np.bool_]) -> tuple[Confidences, Confidences]:
    """Return the mean and variance of the chosen models' confidences for each target."""
    count = chosen.sum(1)
    mean = np.where(chosen, shadows, 0.0).sum(1) / count
    squares = np.where(chosen, (shadows - mean[:, None]) ** 2, 0.0).sum(1)
    if count.min() < FEWEST_OF_A_KIND:
        pooled = squares.sum() / max(1, int((count - 1).sum()))
        return mean, np.full_like(mean, max(pooled, LEAST_VARIANCE))
    return mean, np.maximum(squares / (count - 1), LEAST_VARIANCE)


def _log_density(seen: Confidences, mean: Confidences, variance: Confidences) -> Confidences:
    found: Confidences = -0.5 * (np.log(variance) + (seen - mean) ** 2 / variance)
    return found
