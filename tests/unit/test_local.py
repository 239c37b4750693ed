"""Local training: the pull towards a task's start."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from barnraise.training.local import LocalTrainer


class Bigram(nn.Module):
    """The smallest language model: logits of the next token by the last."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(4, 4))

    def forward(self, input_ids: Tensor, **_: Any) -> SimpleNamespace:
        return SimpleNamespace(logits=self.table[input_ids])


def distance(proximal: float, steps: int = 50) -> float:
    """How far so many steps of SGD lead from their start."""
    trainer = LocalTrainer(
        Bigram(), optimizer="sgd", options={"momentum": 0.0, "weight_decay": 0.0}, gradient_clip=None, proximal=proximal
    )
    start = torch.linspace(-1.0, 1.0, 16)
    trainer.load(start)
    rows = np.array([[0, 1, 2, 3, 0, 1, 2, 3]])
    for _ in range(steps):
        trainer.step((rows, rows), 0.5)
    return float((trainer.flat.vector - start).norm())


def test_the_proximal_term_holds_training_near_its_start() -> None:
    free, pulled, held = distance(0.0), distance(0.1), distance(1.0)
    assert free > 2 * pulled > 4 * held > 0.0


def test_each_task_has_its_own_start() -> None:
    trainer = LocalTrainer(
        Bigram(), optimizer="sgd", options={"momentum": 0.0, "weight_decay": 0.0}, gradient_clip=None, proximal=1.9
    )
    rows = np.array([[0, 0]])
    for value in (5.0, -5.0):
        trainer.load(torch.full((16,), value))
        for _ in range(20):
            trainer.step((rows, rows), 0.5)
        assert float((trainer.flat.vector - value).abs().max()) < 1.0
