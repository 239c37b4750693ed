"""The held-out loss of published parameters.

The only part of a controller that builds the model (transformers).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from barnraise.compression.base import Array
from barnraise.controller.tensors.stages.base import Step
from barnraise.core.errors import ProblemError
from barnraise.core.ranges import overlap
from barnraise.core.threads import SPAN, spans
from barnraise.data.batches import Batch, Rows
from barnraise.data.shards import Dataset
from barnraise.models.exchange.record import Exchange
from barnraise.training.local import CPU, held_out_loss, num_rows, row_losses, tensors
from barnraise.training.problem import careful
from barnraise.training.problems import problem_of

BATCH_ROWS = 16


class Evaluator:
    """Measures versions of an `exchange` of a model on the first `rows` held-out rows of `dataset`.

    The model is built at the first use. On a `device` other than the CPU only `loss` is available.
    """

    def __init__(
        self,
        model: Mapping[str, Any],
        exchange: Exchange,
        dataset: Dataset,
        rows: int,
        warn: Callable[[str], None] = lambda text: None,
        device: str = "cpu",
    ) -> None:
        self._warn, self._device = warn, device
        self.model, self.exchange, self.dataset, self.rows = model, exchange, dataset, rows
        self.problem = problem_of(model)
        self._flat: Any = None

    def another(self) -> Evaluator:
        """Return an evaluator of the same with a model of its own."""
        return Evaluator(self.model, self.exchange, self.dataset, self.rows, self._warn)

    def build(self) -> None:
        """Build the model, if that is not done yet."""
        if self._flat is None:
            from barnraise.models.build import build_exchanged
            from barnraise.models.flat import FlatParameters

            module = build_exchanged(self.model, self.exchange, self.dataset.folder)
            self._flat = FlatParameters(module.to(self._device))

    def model_of(self, parameters: Tensor) -> Any:
        """Return a module in evaluation mode that has these parameters, a version's first, until the next call."""
        self.build()
        self.exchange.module_exchange().enter(self._flat.module, parameters)
        return self._flat.module.eval()

    def shift(self, step: Step, share: float) -> None:
        """Move the model of `model_of` by `share` of a step, in its own parameters."""
        vector = self._flat.vector.numpy()
        for part in overlap(step.where, 0, self.exchange.trained):
            for span in spans(part.stop - part.start, SPAN):
                moved = vector[part.start + span.start : part.start + span.stop]
                step.update.add(part.place + span.start, moved, share)

    def walk(self, into: Callable[[int, Array], None], where: slice, share: float) -> None:
        """Move the model of `model_of` by `share` of the vector that `into` writes.

        `where` is its range of the published parameters, of which only the model's own count.
        """
        vector = self._flat.vector.numpy()[where.start : where.stop]
        for span in spans(len(vector), SPAN):
            moved = np.empty(span.stop - span.start, np.float32)
            into(where.start + span.start, moved)
            vector[span] += np.float32(share) * moved

    def batched(self, rows: Rows, size: int) -> Iterator[Batch]:
        """Yield batches of `size` of these rows of one length."""
        for start in range(0, len(rows), size):
            with careful(self.problem):
                batch = self.problem.batch(rows[start : start + size], self.dataset.meta, np.random.default_rng(start))
            yield batch

    def row_losses(self, module: Any, batches: Sequence[Batch]) -> Array:
        """Return the loss of each row of the batches: float32 [rows]."""
        return row_losses(self.problem, module, batches)

    def losses_and_gradient(self, module: Any, batches: Sequence[Batch]) -> Array:
        """Return the loss of each row of the batches: float32 [rows].

        Leaves the `gradient` of their mean.
        """
        self._flat.gradient.zero_()
        count, found = sum(map(num_rows, batches)), []
        for batch in batches:
            with careful(self.problem):
                losses = self.problem.row_losses(module, tensors(batch, CPU))
                torch.autograd.backward(losses.sum() / count)
            found.append(losses.detach())
        return torch.cat(found).numpy()

    @property
    def gradient(self) -> Array:
        """Return the gradient of the model's own parameters, float32."""
        found: Array = self._flat.gradient.numpy()
        return found

    def loss(self, module: Any) -> float:
        """Return the mean loss of the model on the held-out rows, of text in nats a token.

        NaN, and a warning, where the problem's code raises.
        """
        held_out = self.dataset.held_out(self.rows)
        try:
            return held_out_loss(self.problem, module, self.batched(held_out, BATCH_ROWS), self._device)
        except ProblemError as error:
            self._warn(f"the held-out loss was not measured: {error}")
            return math.nan
