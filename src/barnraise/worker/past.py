"""Earlier versions, from the newest and the deltas that led to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from barnraise.core.errors import PayloadError
from barnraise.core.threads import spans
from barnraise.core.types import Update
from barnraise.worker.replica import Fetched, Replica


class Versions(Protocol):
    """A source of the versions that repeated work needs."""

    def at(self, version: int) -> Tensor:
        """Return the parameters of that version, float32 [size]."""

    def movement(self, version: int) -> Tensor:
        """Return the difference between that version and the one before, float32 [size]."""


class Past:
    """The versions before the one of `published`, as far back as `updates` lead.

    `updates` are in order, the oldest first; the versions are exact but for rounding.
    """

    def __init__(self, published: Replica, version: int, updates: Sequence[Update], fetched: Fetched) -> None:
        if any(update.kind != "delta" for update in updates):
            raise PayloadError("a snapshot cannot be taken back")
        self._published, self._fetched = published, fetched
        self._updates = {update.version: update for update in updates}
        self._version, self._parameters = version, published.copy()

    def at(self, version: int) -> Tensor:
        """Return the parameters of that version, float32 [size], as a copy for the caller.

        Raises PayloadError when it cannot be reached.
        """
        while self._version > version:
            self._move(self._version, np.subtract)
            self._version -= 1
        while self._version < version:
            self._move(self._version + 1, np.add)
            self._version += 1
        return self._parameters.clone()

    def movement(self, version: int) -> Tensor:
        """Return the movement that led to that version, float32 [size]."""
        moved = torch.zeros_like(self._parameters)
        self._published.decode(self._update(version), self._fetched, [moved], np.add)
        return moved

    def _move(self, version: int, move: Callable[..., np.ndarray[tuple[int], np.dtype[np.float32]]]) -> None:
        self._published.decode(self._update(version), self._fetched, [self._parameters], move)

    def _update(self, version: int) -> Update:
        if version not in self._updates:
            raise PayloadError(f"the delta that leads to version {version} is not there")
        return self._updates[version]


class Perturbed:
    """The `versions`, with each element changed by a `share` of itself, up or down at random.

    The signs are drawn by `seed`, and are the same in all versions: the difference of two versions changes only by that
    share.
    """

    def __init__(self, versions: Versions, share: float, seed: int) -> None:
        self._versions, self._share, self._seed = versions, share, seed

    def at(self, version: int) -> Tensor:
        exact, generator = self._versions.at(version), torch.Generator().manual_seed(self._seed)
        changed = torch.empty_like(exact)
        for span in spans(len(exact)):
            up = torch.empty(span.stop - span.start, dtype=torch.float32).bernoulli_(0.5, generator=generator)
            torch.mul(exact[span], up.mul_(2.0 * self._share).add_(1.0 - self._share), out=changed[span])
        return changed

    def movement(self, version: int) -> Tensor:
        return self._versions.movement(version)
