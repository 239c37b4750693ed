"""Attacks on the update itself, the pseudo-gradient D (float32 [d]), before the worker compresses and clips it.

The sent payload is valid. The part of a lie that the codec leaves out stays in the residual as an honest update's
would, and comes with the next one.
"""

from __future__ import annotations

import random

import numpy as np
import torch
from torch import Tensor

from .base import Attack
from .board import Scene


class SignFlip(Attack):
    """Sends D' = -factor * D.

    Li et al. (2019), "RSA: Byzantine-Robust Stochastic Aggregation Methods"; with factor 1 the "bit flipping" of
    Karimireddy et al. (2022), "Byzantine-Robust Learning on Heterogeneous Datasets via Bucketing".

    >>> vector = torch.tensor([1.0, -2.0])
    >>> SignFlip(factor=3.0).update(vector, Scene(""))
    >>> vector.tolist()
    [-3.0, 6.0]
    """

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def update(self, vector: Tensor, scene: Scene) -> None:
        vector.mul_(-self.factor)


class Scale(Attack):
    """Sends D' = factor * D: the boost of model replacement, without a backdoor.

    Bagdasaryan et al. 2020, "How To Backdoor Federated Learning". In a mean of n a factor of n makes the node count as
    much as all others together.
    """

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def update(self, vector: Tensor, scene: Scene) -> None:
        vector.mul_(self.factor)


class Noise(Attack):
    """Sends D' = D + sigma * ||D|| / sqrt(d) * e with e from N(0, I_d): the noise is about sigma times as long as D.

    The Gaussian attack (Blanchard et al. 2017, "Machine Learning with Adversaries") with a length that need not stand
    out. Randomness is drawn from `seed`, the node's name and the task.
    """

    def __init__(self, sigma: float, seed: int) -> None:
        self.sigma, self.seed = sigma, seed

    def update(self, vector: Tensor, scene: Scene) -> None:
        chance = np.random.default_rng(random.Random(f"noise {self.seed} {scene.moment}").getrandbits(64))
        drawn = torch.from_numpy(chance.standard_normal(len(vector), np.float32))
        vector.add_(drawn, alpha=self.sigma * float(torch.linalg.vector_norm(vector)) / len(vector) ** 0.5)


class Zero(Attack):
    """Sends D' = 0: the plain free-rider, which is credited with steps and weakens every mean.

    Fraboni et al. 2021, "Free-rider Attacks on Model Aggregation in Federated Learning".
    """

    def update(self, vector: Tensor, scene: Scene) -> None:
        vector.zero_()


class StaleReplay(Attack):
    """Sends D'_t = D_1: the first update that this process made, whatever the version.

    A free-rider that does not stand out by its norm, as that of Lin et al. (2019), "Free-riders in Federated Learning:
    Attacks and Defenses", which replays the fleet's last movement. Keeps one vector of the parameters' size.
    """

    def __init__(self) -> None:
        self._first: Tensor | None = None

    def update(self, vector: Tensor, scene: Scene) -> None:
        if self._first is None:
            self._first = vector.clone()
        else:
            vector.copy_(self._first)


class Hoard(Attack):
    """Sends D' = -factor * (D_1 + ... + D_period) in every `period`-th task, and is honest in others.

    That is as much as error feedback may have kept back by then, and against the progress since. As the run ends, it
    submits its hoard as its residual. The abuse of error feedback that Karimireddy et al. (2019), "Error Feedback Fixes
    SignSGD", have no bound for: a residual is what its node claims. Keeps one vector of the parameters' size.
    """

    def __init__(self, period: int, factor: float) -> None:
        self.period, self.factor = period, factor
        self._hoard: Tensor | None = None
        self._tasks = 0

    def update(self, vector: Tensor, scene: Scene) -> None:
        self._hoard = vector.clone() if self._hoard is None else self._hoard.add_(vector)
        self._tasks += 1
        if self._tasks % self.period == 0:
            self.residual(vector)

    def residual(self, vector: Tensor) -> None:
        if self._hoard is not None:
            torch.mul(self._hoard, -self.factor, out=vector)
            self._hoard = None
