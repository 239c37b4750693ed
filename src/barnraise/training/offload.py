"""The optimizer's step in main memory, beside parameters on a device, whose memory then holds no moments.

The gradient is copied to main memory, the optimizer steps there, and the parameters are copied back (Ren et al. 2021,
"ZeRO-Offload", section 4). Copies are made piece by piece: the optimizer steps on one while the next arrives and the
last returns. The host waits for the device for the gradient alone.
"""

from __future__ import annotations

from collections import deque

import torch
from torch import Tensor

from barnraise.core.threads import spans
from barnraise.models.flat import FlatParameters
from barnraise.training.catalog import AT_ONCE
from barnraise.training.inner.base import InnerOptimizer
from barnraise.training.transfers import DONE, Transfer, copy_in, host_vector, so_far


class MainMemory:
    """The master weights and their gradient in main memory, float32 [d], for an optimizer to be bound to.

    The parameters of `flat` are a copy of the master weights. Moments are made where the master weights are.
    """

    def __init__(self, flat: FlatParameters) -> None:
        self.flat, self.layout, self.device = flat, flat.layout, flat.vector.device
        self.vector, self.gradient = (host_vector(len(flat.vector), self.device) for _ in range(2))
        self._returned = DONE  # the last copy to the device, before which the master weights must not change
        self._asynchronous = self.device.type == "cuda"
        self.vector.copy_(flat.vector)

    def load(self, parameters: Tensor) -> None:
        """Take `parameters`, float32 [d] in main memory, as the master weights."""
        self._returned.wait()
        self.vector.copy_(parameters)

    def shift(self, offset: Tensor) -> None:
        """Move the master weights by `offset`, float32 [d] in main memory."""
        self._returned.wait()
        self.vector.add_(offset)

    def step(self, optimizer: InnerOptimizer, rate: float) -> None:
        """Let `optimizer`, which is bound to this, follow the gradient on the device, and move the parameters there."""
        arriving = deque[tuple[int, Transfer]]()
        for span in spans(len(self.vector), AT_ONCE):
            self.gradient[span].copy_(self.flat.gradient[span], non_blocking=self._asynchronous)
            arriving.append((span.start, so_far(self.device)))
        taken = slice(0, 0)
        for place in optimizer.step_by_piece(rate):
            self._give(taken)
            while arriving and arriving[0][0] < place.stop:
                arriving.popleft()[1].wait()  # copies to the device that began before are done by then, too
            taken = place
        self._give(taken)
        self._returned.hold()

    def _give(self, place: slice) -> None:
        """Copy master weights to the device, while the optimizer steps on."""
        with torch.no_grad():
            self._returned = copy_in(self.vector[place], self.flat.vector[place])
