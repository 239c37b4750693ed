"""Held-out loss of published parameters. The only part of a controller that builds the model (transformers)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from barnraise.controller.version.base import Step
from barnraise.core.threads import SPAN, spans
from barnraise.data.shards import Dataset, labels
from barnraise.training.local import held_out_loss

BATCH_ROWS = 16


class Evaluator:
    """Measures parameters on the first `rows` held-out rows of `dataset`. The model is built at the first use."""

    def __init__(self, model: Mapping[str, Any], dataset: Dataset, rows: int) -> None:
        self.model, self.dataset, self.rows = model, dataset, rows
        self._flat: Any = None

    def build(self) -> None:
        """Build the model, if that is not done yet."""
        if self._flat is None:
            from barnraise.models.build import build
            from barnraise.models.flat import FlatParameters

            self._flat = FlatParameters(build(self.model))

    def model_of(self, parameters: Tensor) -> Any:
        """A module in evaluation mode that has these parameters, a version's first, until the next call."""
        self.build()
        self._flat.vector.copy_(parameters[: self._flat.num_parameters])
        return self._flat.module.eval()

    def shift(self, step: Step, share: float) -> None:
        """Move the model of `model_of` by `share` of a step, as far as that is of its own parameters."""
        where, vector = step.where, self._flat.vector.numpy()
        stop = min(where.stop, self._flat.num_parameters)
        for span in spans(max(0, stop - where.start), SPAN):
            step.update.add(span.start, vector[where.start + span.start : where.start + span.stop], share)

    def loss(self, module: Any) -> float:
        """Mean cross-entropy of `model_of` some parameters over all labelled positions, nats a token."""
        held_out = self.dataset.held_out(self.rows)
        batches = (held_out[start : start + BATCH_ROWS] for start in range(0, len(held_out), BATCH_ROWS))
        return held_out_loss(module, ((b.astype(np.int64), labels(b, self.dataset.meta)) for b in batches))
