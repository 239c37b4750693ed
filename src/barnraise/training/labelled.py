"""Labelled tokens: the cross-entropy of each position that has a label, which several problems have in common."""

from __future__ import annotations

import numpy as np
from torch import Tensor, nn

from barnraise.data.batches import Batch
from barnraise.data.meta import Format
from barnraise.data.shards import IGNORED
from barnraise.training.problem import Problem, Tensors


class LabelledTokens(Problem):
    """Predicts a token at each position that has a label; a subclass says from what."""

    def predicted(self, module: nn.Module, batch: Tensors) -> tuple[Tensor, Tensor]:
        """Return logits [rows, length, vocabulary] and their labels [rows, length], `IGNORED` where none counts."""
        raise NotImplementedError(f"{type(self).__name__} has no method predicted")

    def loss(self, module: nn.Module, batch: Tensors) -> tuple[Tensor, Tensor]:
        each, counts = self._each(module, batch)
        return each.sum(), counts.sum()

    def row_losses(self, module: nn.Module, batch: Tensors) -> Tensor:
        each, counts = self._each(module, batch)
        return each.sum(1) / counts.sum(1).clamp(min=1)

    def positions(self, batch: Batch) -> int:
        return int(batch["input_ids"].shape[1])

    def trial_batch(self, form: Format, num_rows: int, length: int) -> Batch:
        ids = np.random.default_rng(0).integers(0, form.vocab_size, (num_rows, length))
        return {"input_ids": ids, "labels": ids}

    def _each(self, module: nn.Module, batch: Tensors) -> tuple[Tensor, Tensor]:
        """Return the loss of each position, and which count: both [rows, length]."""
        logits, labels = self.predicted(module, batch)
        each = nn.functional.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="none"
        )
        return each.view_as(labels), labels != IGNORED
