"""The settings of differential privacy that a worker gets."""

from __future__ import annotations

import msgspec

from barnraise.core.types import Finite


class Private(msgspec.Struct, frozen=True):
    """The clip and the noise of differential privacy.

    With `rate` each local step clips and noises the gradients of single rows, of a random share `rate` of the task's
    rows; with 0 the update of a task is clipped and noised as a whole.
    """

    clip: Finite  # largest L2 norm
    noise: Finite  # standard deviation of a value's noise, as a multiple of `clip`
    rate: Finite = 0.0
