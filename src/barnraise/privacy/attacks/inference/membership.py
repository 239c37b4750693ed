"""Membership: whether a row was among those that a model was trained on, by LiRA and by a threshold of the loss."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from barnraise.data.batches import Rows
from barnraise.privacy.attacks.base import AttackTrial, PrivacyAttack
from barnraise.privacy.attacks.inference import ratios
from barnraise.privacy.attacks.setting import AttackSetting

TARGETS = 40
"""Rows whose membership is tried; each model is trained on half of them."""

SHADOWS, VICTIMS = 16, 10
"""Models that the adversary trains, and models that it attacks."""

PASSES = 6
"""Passes of a model's training over its rows."""

MOST_LOSS = 1e4
"""The loss that counts for a model whose losses are not finite."""


class RowMembership(PrivacyAttack):
    """Names a row a member where LiRA's likelihood ratio says so (online variant, Carlini et al. 2022).

    A model is trained in versions: each is the one before minus the mean of a group's updates, as the protection shows
    it. One site of the group has the targets that are members and as many other rows, and the others have other rows.
    The adversary sees the last version, and trains shadow models the same way on public rows and targets.
    """

    def prepare(self, setting: AttackSetting, rng: np.random.Generator) -> None:
        """Train the shadow models and the victims."""
        count = min(TARGETS, len(setting.private) // 2) // 2 * 2
        order = rng.permutation(len(setting.private))
        targets, others = setting.private[order[:count]], setting.private[order[count:]]
        inside = ratios.halves(count, SHADOWS, rng)
        shadows = np.stack([confidences(setting, targets, chosen, setting.public, rng) for chosen in inside.T], axis=1)
        self.member = ratios.halves(count, VICTIMS, rng)
        self.statistics = np.stack(
            [
                self.statistic(confidences(setting, targets, chosen, others, rng), shadows, inside)
                for chosen in self.member.T
            ],
            axis=1,
        )

    def statistic(
        self, seen: ratios.Confidences, shadows: ratios.Confidences, inside: NDArray[np.bool_]
    ) -> ratios.Confidences:
        """Return a statistic of each target, above 0 where it is named a member."""
        return ratios.online(seen, shadows, inside)

    def trial(self, setting: AttackSetting, rng: np.random.Generator) -> AttackTrial:
        target, victim = int(rng.integers(len(self.member))), int(rng.integers(VICTIMS))
        statistic, member = float(self.statistics[target, victim]), bool(self.member[target, victim])
        guess = bool(rng.integers(2))
        return AttackTrial(float((statistic > 0.0) == member), float(guess == member))

    def figures(self) -> Mapping[str, float]:
        """Return the area under the ROC curve, and the true positives at 1% false positives, over all pairs."""
        statistics, member = self.statistics.ravel(), self.member.ravel()
        return {
            "auc": ratios.auc(statistics, member),
            "tpr_at_1_percent": ratios.true_positives(statistics, member, 0.01),
        }


class OfflineMembership(RowMembership):
    """Names the half of the targets members whose confidences exceed most those of models without them."""

    def statistic(
        self, seen: ratios.Confidences, shadows: ratios.Confidences, inside: NDArray[np.bool_]
    ) -> ratios.Confidences:
        found = ratios.offline(seen, shadows, inside)
        return found - np.median(found)


class LossThreshold(RowMembership):
    """Names a row a member where its loss is below one threshold for all rows: the weak baseline."""

    def statistic(
        self, seen: ratios.Confidences, shadows: ratios.Confidences, inside: NDArray[np.bool_]
    ) -> ratios.Confidences:
        return ratios.loss_threshold(seen, shadows, inside)


def confidences(
    setting: AttackSetting, targets: Rows, chosen: NDArray[np.bool_], others: Rows, rng: np.random.Generator
) -> ratios.Confidences:
    """Train a model on the chosen targets and as many of the other rows, and return its confidence for each target."""
    fill = others[rng.choice(len(others), len(targets), replace=len(others) < len(targets))]
    rows = np.concatenate([targets[chosen], fill[: len(targets) - int(chosen.sum())]])
    return -losses(setting, trained(setting, rows, others, rng), targets)


def trained(setting: AttackSetting, rows: Rows, others: Rows, rng: np.random.Generator) -> Tensor:
    """Return the parameters after training on `rows` in versions, float32 [d]; group members train on `others`."""
    each, protection, now = setting.training.rows, setting.protection, setting.start
    for _ in range(PASSES):
        order = rng.permutation(len(rows))
        for first in range(0, len(rows) - each + 1, each):
            own = rows[order[first : first + each]]
            beside = [
                others[rng.choice(len(others), each, replace=len(others) < each)] for _ in range(protection.members - 1)
            ]
            updates = [setting.update(some, now) for some in [own, *beside]]
            now = now - protection.seen(updates, rng) / protection.members
    return now


def losses(setting: AttackSetting, parameters: Tensor, rows: Rows) -> NDArray[np.float64]:
    """Return the mean loss of each row's tokens but the first, [rows]."""
    module = setting.module(parameters).eval()
    tokens = torch.from_numpy(np.asarray(rows, dtype=np.int64))
    with torch.no_grad():
        logits = module(input_ids=tokens, use_cache=False).logits[:, :-1]
        found = torch.nn.functional.cross_entropy(logits.transpose(1, 2).float(), tokens[:, 1:], reduction="none")
    module.train()
    finite = found.mean(1).double().nan_to_num(nan=MOST_LOSS, posinf=MOST_LOSS)
    return finite.clamp(max=MOST_LOSS).numpy()
