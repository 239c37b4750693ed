"""The loss that an attacker measures: of the published parameters less an update, on the rows of its own task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby, islice

import numpy as np
import torch

from barnraise.compression.base import Array
from barnraise.data.batches import Batch
from barnraise.training.local import LocalTrainer, batch_loss, row_losses

MOST_BATCHES = 16
"""Batches of its task that the attacker measures on, at most."""


class Surface:
    """Measures L(D), the mean loss of the parameters from `published` (float32 [d]) less an update D (float32 [d]).

    In nats a token, on the first `MOST_BATCHES` batches that `read` gives, without dropout, with the module of
    `trainer`. The module is restored after each call. Nothing is read before the first call.
    """

    def __init__(
        self, trainer: LocalTrainer, published: Callable[[], Array], read: Callable[[], Iterable[Batch]]
    ) -> None:
        self._trainer, self._published, self._read = trainer, published, read
        self._batches: list[Batch] = []
        self._origin = np.zeros(0, np.float32)

    def loss(self, update: Array) -> float:
        """Return L(D), in nats a token."""
        with self._at(update) as batches, torch.no_grad():
            return sum(self._loss(batch, len(batches)).item() for batch in batches)

    def losses(self, update: Array) -> Array:
        """Return L(D) on each row: float32 [rows]."""
        with self._at(update) as batches:
            return row_losses(self._trainer.problem, self._trainer.module, batches)

    def ascent(self, update: Array) -> Array:
        """Return the direction in D, of length 1, in which L rises most; zeros where L is flat."""
        gradient = self._trainer.flat.gradient
        with self._at(update) as batches:
            kept = gradient.clone()
            gradient.zero_()
            for batch in batches:
                torch.autograd.backward(self._loss(batch, len(batches)))
            found = np.zeros_like(update)
            found[: len(gradient)] = -gradient.cpu().numpy()
            gradient.copy_(kept)
        return unit(found)

    def _loss(self, batch: Batch, count: int) -> torch.Tensor:
        return batch_loss(self._trainer.problem, self._trainer.module, batch, self._trainer.device) / count

    @contextmanager
    def _at(self, update: Array) -> Iterator[list[Batch]]:
        """Give the module the parameters that `update` leads to, in the body."""
        if not self._batches:
            self._batches = list(_joined(islice(self._read(), MOST_BATCHES)))
            self._origin = self._published()
        module, vector = self._trainer.module, self._trainer.flat.vector
        kept, training = vector.clone(), module.training
        module.eval()
        vector.copy_(torch.from_numpy((self._origin - update)[: len(vector)]))
        try:
            yield self._batches
        finally:
            vector.copy_(kept)
            module.train(training)


def unit(vector: Array) -> Array:
    """Return `vector` at length 1; zeros stay zeros.

    >>> unit(np.array([3, 4], np.float32)).tolist()
    [0.6000000238418579, 0.800000011920929]
    """
    found: Array = vector / np.float32(max(float(np.linalg.norm(vector)), 1e-30))
    return found


def _joined(batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yield one batch of all whose rows are of one shape: few large ones are measured faster."""
    for _, alike in groupby(sorted(batches, key=_shapes), _shapes):
        some = list(alike)
        yield {name: np.concatenate([batch[name] for batch in some]) for name in some[0]}


def _shapes(batch: Batch) -> list[tuple[int, ...]]:
    return [array.shape[1:] for array in batch.values()]
