"""The session of a stateful worker whose exchange stays on its accelerator, and the stages of its updates.

Residual, ends of tasks, and offsets are on the device. A version comes there once, and of an update the kept elements
alone come back. All work is on the device's one stream, in the order in which both threads ask for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from barnraise.compression.device_selection import DeviceFeedback, add_read
from barnraise.core.errors import PayloadError
from barnraise.training.device import EXCHANGED_VECTORS
from barnraise.training.transfers import copy_in
from barnraise.worker.stages import NOT_FINITE, Clip, Difference, Draft
from barnraise.worker.stateful import StatefulSession
from barnraise.worker.update_path import Opened, UpdatePath


class DeviceDifference(Difference):
    """The pseudo-gradient of ends that are on a device."""

    def forward(self, update: Draft) -> None:
        update.vector.sub_(update.end).mul_(float(np.float32(update.scale)))
        if self.feedback:
            self.feedback.add(update.vector)
        if not (update.whole or torch.isfinite(torch.stack(torch.aminmax(update.vector))).all()):
            raise PayloadError(NOT_FINITE)


class DeviceClip(Clip):
    """Scales an update on a device."""

    def scale(self, vector: Tensor, share: np.float32) -> None:
        vector.mul_(float(share))


class DevicePath(UpdatePath):
    """The path of updates whose vectors are on a device."""

    difference, clip, feedback_kind = DeviceDifference, DeviceClip, DeviceFeedback


class DeviceSession(StatefulSession):
    """A stateful session whose vectors are on the trainer's device.

    They are made before the first step, so that the trainer finds out which batches have room beside them.
    """

    made_first = EXCHANGED_VECTORS - 1  # the first residual is one more

    def _vector(self) -> Tensor:
        size, device = len(self.published.parameters), self.trainer.device
        return self._free.pop() if self._free else torch.empty(size, dtype=torch.float32, device=device)

    def _record(self, start: Tensor, moved: Tensor) -> None:
        start.add_(moved)

    def _brought(self, movement: Tensor) -> Tensor:
        there = self._vector()
        copy_in(movement, there).wait()
        self.published.reuse(movement)
        return there

    def _used(self, movement: Tensor) -> None:
        self._free.append(movement)

    def _merge(self, start: Tensor, here: Tensor, unmerged: Sequence[Opened]) -> None:
        own, moved, share, feedback = self._vector(), self._vector(), self.published.share, self.path.feedback
        copy_in(self.published.parameters, own).wait()
        for covered, reader in unmerged:
            add_read(reader, own, covered, -share)
        own.add_(torch.sub(here, start, out=moved), alpha=share)
        if feedback and feedback.residual is not None and self.path.keep:
            own.sub_(feedback.residual, alpha=self.path.keep)
        torch.sub(own, here, out=here)
        here.mul_(1.0 - self._downlink.merge_lerp)
        self._free += [own, moved]
