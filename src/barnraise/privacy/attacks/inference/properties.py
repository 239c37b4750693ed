"""A property of a site's rows from its update, by a classifier that was trained on shadow updates."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from barnraise.data.batches import Rows
from barnraise.privacy.attacks.base import AttackTrial, PrivacyAttack
from barnraise.privacy.attacks.inference import ratios
from barnraise.privacy.attacks.setting import AttackSetting

SHADOWS = 96
"""Shadow updates of known property, half of each."""

SHARE = 0.9
"""Share of the rows with the property at a site that has it; 1 - SHARE at a site that has it not."""

MOST_ROWS = 1000
"""Public rows that determine the axis."""


class SiteProperty(PrivacyAttack):
    """Says on which side of the main topic axis most rows of a site lie.

    The axis is the first principal component of the token counts of public rows, which parts languages, topics or sizes
    of formulas where these differ most. A ridge classifier is trained on updates of public rows (Melis et al. 2019,
    "Exploiting unintended feature leakage", section IV-C). The control is a classifier with permuted labels.
    """

    def prepare(self, setting: AttackSetting, rng: np.random.Generator) -> None:
        """Train the classifier and the control on shadow updates."""
        axis, middle = main_axis(setting.public, setting.vocab_size)
        self.private = sides(setting.private, axis, middle, setting.vocab_size)
        public = sides(setting.public, axis, middle, setting.vocab_size)
        labels = rng.permutation(np.arange(SHADOWS) % 2 == 1)
        shadows = torch.stack([seen(setting, public, bool(label), rng) for label in labels])
        self.classifier = Ridge(shadows, labels)
        self.control = Ridge(shadows, rng.permutation(labels))
        self.judged: list[tuple[float, bool]] = []

    def trial(self, setting: AttackSetting, rng: np.random.Generator) -> AttackTrial:
        label = bool(rng.integers(2))
        update = seen(setting, self.private, label, rng)
        found, guess = self.classifier.margin(update), self.control.margin(update)
        self.judged.append((found, label))
        return AttackTrial(float((found > 0.0) == label), float((guess > 0.0) == label))

    def figures(self) -> Mapping[str, float]:
        """Return the area under the ROC curve of the trials so far; nothing while they lack one of the labels."""
        member = np.array([label for _, label in self.judged], dtype=bool)
        if member.all() or not member.any():
            return {}
        return {"auc": ratios.auc(np.array([margin for margin, _ in self.judged]), member)}


class Ridge:
    """A ridge classifier of centred unit vectors, in its dual form: as many weights as there are vectors.

    With K = X X^T the margin of x is y^T (K + l I)^-1 X x, for labels y of -1 and 1, where l is the mean of K's
    diagonal times `penalty`.
    """

    def __init__(
        self, vectors: Tensor, labels: np.ndarray[tuple[int], np.dtype[np.bool_]], penalty: float = 0.1
    ) -> None:
        self.centre = vectors.mean(0)
        inputs = torch.nn.functional.normalize(vectors - self.centre, dim=1)
        kernel = (inputs @ inputs.T).double()
        signs = torch.from_numpy(np.where(labels, 1.0, -1.0))
        ridge = penalty * torch.eye(len(vectors), dtype=torch.float64)
        self.weights = torch.linalg.solve(kernel + ridge, signs).float() @ inputs

    def margin(self, vector: Tensor) -> float:
        """Return the margin of a vector, above 0 for the label True."""
        return float(torch.nn.functional.normalize(vector - self.centre, dim=0) @ self.weights)


def seen(setting: AttackSetting, rows: tuple[Rows, Rows], label: bool, rng: np.random.Generator) -> Tensor:
    """Return what the adversary sees of a group whose first site has the property `label`; the others' are drawn."""
    labels = [label, *(bool(rng.integers(2)) for _ in range(setting.protection.members - 1))]
    updates = [setting.update(drawn(rows, one, setting.training.rows, rng)) for one in labels]
    return setting.protection.seen(updates, rng)


def drawn(rows: tuple[Rows, Rows], label: bool, count: int, rng: np.random.Generator) -> Rows:
    """Draw `count` rows of a site, each with a chance of SHARE from the side `label`."""
    chosen = [rows[int(label if rng.random() < SHARE else not label)] for _ in range(count)]
    return np.stack([side[int(rng.integers(len(side)))] for side in chosen])


def main_axis(rows: Rows, vocab_size: int) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], float]:
    """Return the first principal component of the rows' token counts, and the median of their places on it."""
    counts = _counts(rows[:MOST_ROWS], vocab_size)
    _, _, axes = np.linalg.svd(counts - counts.mean(0), full_matrices=False)
    axis = axes[0] * (1.0 if axes[0][int(np.abs(axes[0]).argmax())] > 0 else -1.0)
    return axis, float(np.median(counts @ axis))


def sides(
    rows: Rows, axis: np.ndarray[tuple[int], np.dtype[np.float64]], middle: float, vocab_size: int
) -> tuple[Rows, Rows]:
    """Return the rows at most at the `middle` of the axis, and those above it; at least one of each."""
    places = _counts(rows, vocab_size) @ axis
    order = np.argsort(places, kind="stable")
    below = int(np.clip((places <= middle).sum(), 1, len(rows) - 1))
    return rows[order[:below]], rows[order[below:]]


def _counts(rows: Rows, vocab_size: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.stack([np.bincount(row, minlength=vocab_size) for row in rows]).astype(np.float64)
