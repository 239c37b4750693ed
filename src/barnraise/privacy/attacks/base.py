"""The interface of attacks on privacy: a trial gives the attack's score, and that of a control."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from barnraise.privacy.attacks.setting import AttackSetting


@dataclass(frozen=True)
class AttackTrial:
    """The result of one trial: two scores from 0 (nothing was learned) to 1.

    `control` is the score of an adversary with the same knowledge that sees nothing of the victim: it guesses from
    public rows, from another site's update or from permuted labels.
    """

    score: float
    control: float


class PrivacyAttack(ABC):
    """Base class of attacks on privacy.

    The adversary knows the model, its parameters before the update, the local training and the protection with its
    parameters, and has public rows like those of the victims. It never sees the private rows. The catalog has the
    attack's name, what it sees, and the threshold from which on a score is a success.
    """

    def prepare(self, setting: AttackSetting, rng: np.random.Generator) -> None:  # noqa: B027 (most need none)
        """Prepare what all trials of a setting share, such as shadow models; called once before the trials."""

    @abstractmethod
    def trial(self, setting: AttackSetting, rng: np.random.Generator) -> AttackTrial:
        """Play one trial against a victim that `rng` chooses."""

    def figures(self) -> Mapping[str, float]:
        """Return further figures over all trials by their names, such as an area under a curve; most have none."""
        return {}
