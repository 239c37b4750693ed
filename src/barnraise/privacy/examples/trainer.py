"""A trainer whose steps tell little of any single row: DP-SGD, and with AdamW's moments DP-AdamW.

Abadi et al. 2016, "Deep Learning with Differential Privacy", algorithm 1. With C the clip and B the rows that a batch
has in the mean, a step follows

    ( sum over the batch of g_i min(1, C / |g_i|)  +  N(0, (noise C)^2) ) / B

All behind it is post-processing: moments, weight decay, the clip of the whole gradient, FedProx's pull, the update,
the residual of compression, and the versions. B is a constant: the size of a batch would tell of rows.
A row whose gradient is not finite counts as 0, so no step is skipped because of the rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from barnraise.data.batches import Batch
from barnraise.privacy.examples.row_gradients import RowGradients
from barnraise.privacy.gaussian import SecretStream, add_noise
from barnraise.training.local import LocalTrainer, num_rows, tensors
from barnraise.wire.private import Private

ROUNDING = 1.0 - 2.0**-20
"""Factor of the clip to which a longer gradient is scaled: float32 rounds."""

MOST_VALUES = 1 << 26
"""Values of gradients that are held at a time, 256 MiB, unless those of one row are more."""


class PrivateTrainer(LocalTrainer):
    """Takes inner steps along clipped and noised gradients of single rows; `batch_size` is B.

    The loss that it returns is 0: the loss of rows is withheld.
    """

    def __init__(self, module: nn.Module, *, private: Private, batch_size: int, **options: Any) -> None:
        super().__init__(module, **options)
        self.private, self.batch_size = private, batch_size
        self._rows, self._stream = RowGradients(self.module, self.problem), SecretStream()

    def row_overhead(self, batch: Batch) -> float:
        """Measure the time of a private gradient over that of a usual one, of each the faster of two."""
        private = min(_seconds(partial(self._accumulate, batch)) for _ in range(2))
        usual = min(_seconds(partial(LocalTrainer._accumulate, self, batch)) for _ in range(2))
        self.flat.gradient.zero_()  # the usual one has no noise
        return max(1.0, private / usual) if usual > 0.0 else 1.0

    def _accumulate(self, batch: Batch) -> Tensor:
        total = torch.zeros_like(self.flat.gradient)
        rows = num_rows(batch)
        few = min(self.rows_at_once(self.problem.positions(batch)) or rows, max(1, MOST_VALUES // total.numel()), rows)
        for first in range(0, rows, few or 1):
            some = {name: array[first : first + few] for name, array in batch.items()}
            with self._autocast():
                gradients = self._rows.of(tensors(some, self.device))
            total += clipped_sum(gradients, self.private.clip)
        if self._rows.remark and self._rows.remark not in self.remarks:
            self.remarks.append(self._rows.remark)
        values = total.cpu()
        add_noise(values.numpy(), self.private.noise * self.private.clip, self._stream)
        self.flat.gradient.copy_(values).div_(self.batch_size)
        return torch.zeros((), device=self.device)


def _seconds(work: Callable[[], Tensor]) -> float:
    """Return the seconds of `work`, until its result is known."""
    began = time.monotonic()
    float(work())
    return time.monotonic() - began


def clipped_sum(gradients: Tensor, clip: float) -> Tensor:
    """Return the sum of gradients, float32 [rows, d], each scaled to a norm of `clip` at most; 0 for one not finite.

    The norm is found in float64, so that rounding does not let a gradient pass its clip.
    """
    norms = torch.linalg.vector_norm(gradients, dim=1, dtype=torch.float64)
    sound = torch.isfinite(norms)
    shares = torch.where(sound, (ROUNDING * clip / norms).clamp(max=1.0), 0.0).to(gradients.dtype)
    return shares @ torch.where(sound[:, None], gradients, 0.0)
