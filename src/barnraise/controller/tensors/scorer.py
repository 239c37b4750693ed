"""The effect of a contribution on the loss of its own rows, and of others."""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

import numpy as np
from torch import Tensor

from barnraise.controller.state.effects import SCORED_ROWS, Gains, Score
from barnraise.controller.tensors.evaluator import BATCH_ROWS, Evaluator
from barnraise.controller.tensors.stages.base import Step
from barnraise.core.types import Batches
from barnraise.data.batches import Batch, Rows, batches
from barnraise.data.shards import Dataset
from barnraise.training.local import num_rows

FEWEST = 16
"""Own rows of a task with few rows: a quarter of its steps, so that half of the work has half of a chance."""

STEP = 0.3
"""Share of the update for the step: short, since a whole one from an older version leads past the optimum, and then
says less about the rows."""

_TRIES = 16


class Scorer:
    """Scores contributions with the `evaluator`'s model."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator

    def gains(
        self, parameters: Tensor, step: Step, usual: Step | None, action: Score, dataset: Dataset
    ) -> Gains | None:
        """Return the effect of a part of `step` on the loss of `parameters`, or None where there are no other rows.

        Measured on rows of `dataset` that the task had, from consecutive steps of it, and on others. Rows that gain
        much by any training hide the step's effect on its own: how much more these gain is the effect of being its own
        in a linear regression (analysis of covariance), beside their loss before and the effect of a `usual` step, that
        of the newest version, on each.
        """
        rng = np.random.default_rng(action.seed)
        own, others = self._own(action, dataset, rng), self._others(action.batches, dataset, rng)
        if not own or not others:
            return None
        rows, (count, many) = own + others, (sum(map(num_rows, some)) for some in (own, others))
        before = self._evaluator.row_losses(self._evaluator.model_of(parameters), rows)
        known = [np.repeat([1.0, 0.0], [count, many]), np.ones_like(before), before]
        if usual is not None:
            known.append(before - self._after(parameters, usual, 1.0, rows))
        gain = before - self._after(parameters, step, -STEP, rows)
        more = _more(np.stack(known, axis=1, dtype=np.float64), gain.astype(np.float64))
        return Gains(float(gain[:count].mean()), float(gain[count:].mean()), more)

    def _after(self, parameters: Tensor, step: Step, share: float, rows: list[Batch]) -> Rows:
        module = self._evaluator.model_of(parameters)
        self._evaluator.shift(step, share)
        return self._evaluator.row_losses(module, rows)

    def _own(self, action: Score, dataset: Dataset, rng: np.random.Generator) -> list[Batch]:
        """Return batches of consecutive steps, from a secret one on: a node that took only some steps misses them."""
        order, steps = action.batches, max(1, action.steps)
        parts = [dataset.rows(rows.shard, rows.start, rows.stop) for rows in order.rows]
        size = max(1, order.size)
        wanted = -(-min(SCORED_ROWS, max(FEWEST, steps * size // 4)) // size)
        first = order.skip + int(rng.integers(max(1, steps - wanted + 1)))
        whole = batches(parts, order, dataset.meta, self._evaluator.problem.batch)
        return list(islice(whole, first, min(order.skip + steps, first + wanted)))

    def _others(self, order: Batches, dataset: Dataset, rng: np.random.Generator) -> list[Batch]:
        """Return rows of the same shards that the task did not have."""
        taken = [(rows.shard, rows.start, rows.stop) for rows in order.rows]
        share = np.array([stop - start for _, start, stop in taken], np.float64)
        found: dict[np.dtype[Any], list[Rows]] = {}
        for number in rng.choice(len(taken), SCORED_ROWS, p=share / share.sum()):
            shard = taken[number][0]
            for place in rng.integers(dataset.meta.shards[shard].rows, size=_TRIES):
                if not any(at == shard and start <= place < stop for at, start, stop in taken):
                    row = dataset.rows(shard, int(place), int(place) + 1)
                    found.setdefault(row.dtype, []).append(row)
                    break
        return [batch for rows in found.values() for batch in self._evaluator.batched(np.concatenate(rows), BATCH_ROWS)]


def _more(known: Rows, gain: Rows) -> float:
    """Return the coefficient of the first of the columns [rows, k] for `gain` [rows], in standard errors.

    Ordinary least squares; NaN where numbers are not finite.
    """
    if not (np.isfinite(known).all() and np.isfinite(gain).all()):
        return math.nan
    found = np.linalg.pinv(known.T @ known)
    effects = found @ (known.T @ gain)
    rest = gain - known @ effects
    variance = found[0, 0] * float(rest @ rest) / max(1, len(gain) - known.shape[1])
    return float(effects[0] / math.sqrt(variance)) if variance > 0.0 else 0.0
