"""Attacks on the work: other steps than those that were assigned."""

from __future__ import annotations

import math

import numpy as np

from barnraise.data.batches import Batch

from .base import Attack


class Lazy(Attack):
    """Takes h' = max(1, ceil(share * h)) of the h assigned steps and claims all h.

    D' = w_0 - w_h', with the weight of h steps. A free-rider (Lin et al. 2019, "Free-riders in Federated Learning:
    Attacks and Defenses") that does some of the work. A simulated one takes as long as if it did all of it.

    >>> Lazy(share=0.25).num_steps(10)
    3
    """

    def __init__(self, share: float) -> None:
        self.share = share

    def num_steps(self, assigned: int) -> int:
        return min(assigned, max(1, math.ceil(self.share * assigned)))


class LabelFlip(Attack):
    """Replaces each label l by V - 1 - l, V being the size of the vocabulary.

    Fang et al. 2020, "Local Model Poisoning Attacks to Byzantine-Robust Federated Learning". Positions without a label
    stay without one. The steps are honest ones, on other data, as is the reported loss.

    >>> batch = {"input_ids": np.array([[3, 4]]), "labels": np.array([[-100, 4]])}
    >>> {name: array.tolist() for name, array in LabelFlip().batch(batch, 10).items()}
    {'input_ids': [[3, 4]], 'labels': [[-100, 5]]}
    """

    def batch(self, batch: Batch, vocab_size: int) -> Batch:
        labels = batch["labels"]
        return batch | {"labels": np.where(labels >= 0, vocab_size - 1 - labels, labels)}
