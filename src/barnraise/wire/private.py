"""The settings of differential privacy, and of encryption, that a worker gets."""

from __future__ import annotations

from typing import Annotated

import msgspec

from barnraise.core.types import Count, Finite


class Private(msgspec.Struct, frozen=True):
    """The clip and the noise of differential privacy.

    With `rate` each local step clips and noises the gradients of single rows, of a random share `rate` of the task's
    rows; with 0 the update of a task is clipped and noised as a whole.
    """

    clip: Finite  # largest L2 norm
    noise: Finite  # standard deviation of a value's noise, as a multiple of `clip`
    rate: Finite = 0.0


class Encrypted(msgspec.Struct, frozen=True):
    """The terms of encrypted updates: the key that workers share, at most `updates` of the run, and their bound.

    `weights` are the factors of an update by its staleness in versions, the last one for all above.
    """

    key: Annotated[str, msgspec.Meta(max_length=200)]  # its name and id, not the key
    updates: Count
    bound: Finite  # how far a parameter moves over the run, twice
    weights: Annotated[
        tuple[Annotated[float, msgspec.Meta(gt=0, le=1e6)], ...], msgspec.Meta(min_length=1, max_length=256)
    ]
