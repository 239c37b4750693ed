"""The interface of a problem: the batches and the loss by which a model is trained.

A package of your own may bring a problem. Everything else of a run knows rows, batches and a loss only through it. The
causal language model is the default.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from barnraise.data.batches import Batch, Rows
from barnraise.data.meta import Format

Tensors = dict[str, Tensor]
"""The arrays of a batch as tensors on the module's device; the first axis of each is the rows."""


class Problem:
    """The thing that is trained: its batches and its loss."""

    def batch(self, rows: Rows, form: Format, chance: np.random.Generator) -> Batch:
        """Return the arrays that `loss` needs of these rows.

        `chance` is seeded by the task and the number of the batch: a task that is repeated has the same batches.
        """
        raise NotImplementedError

    def loss(self, module: nn.Module, batch: Tensors) -> tuple[Tensor, Tensor]:
        """Return the loss summed over the batch, and its weight: of how many items it is the sum.

        A step follows the gradient of all sums over all weights, so a batch may be cut along its rows.
        """
        raise NotImplementedError

    def row_losses(self, module: nn.Module, batch: Tensors) -> Tensor:
        """Return the mean loss of each row: float32 [rows]."""
        found = []
        for row in range(len(next(iter(batch.values())))):
            total, weight = self.loss(module, {name: values[row : row + 1] for name, values in batch.items()})
            found.append(total / weight if weight else torch.zeros_like(total))
        return torch.stack(found)

    def positions(self, batch: Batch) -> int:
        """Return how many positions a row of the batch has: what memory for it grows with."""
        return 1

    def trial_batch(self, form: Format, num_rows: int, length: int) -> Batch:
        """Return a batch of rows of `length` positions, on which a machine's speed is measured."""
        raise NotImplementedError
