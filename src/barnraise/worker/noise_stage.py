"""The stage that clips a worker's update and adds noise to it, before error feedback and the codec.

The stage stands directly behind the difference: d is the change of the parameters in a task, scaled as it will be sent.

    y = d min(1, C / |d|) + N(0, (noise C)^2)        all of the vector, also ranges that are not sent in this round
    s = y + e,   q = encode(s),   e <- s - q         what error feedback kept is added behind the noise

Only y depends on rows directly. One task changes d min(1, C / |d|) by C at most if its rows are taken away, whatever
the other tasks were, so y is a Gaussian mechanism with multiplier `noise`. The residual e is computed from earlier y
alone: e, q, and every later residual are post-processing of noised vectors, and so are a clip behind the codec, a
refused update that returns to the residual, and the versions. For the same reason nothing needs to bound e. A clip
behind the sum would bound y + e instead: e holds noise of norm noise C sqrt(d), far above C, which would crush the
update.
"""

from __future__ import annotations

import numpy as np
import torch

from barnraise.compression.feedback import norm
from barnraise.core.errors import PayloadError
from barnraise.core.threads import Crew, spans
from barnraise.privacy.gaussian import SecretStream, add_noise
from barnraise.worker.protection_timer import ProtectionTimer
from barnraise.worker.stages import MARGIN, NOT_FINITE, Draft, WorkerStage


class ClippedNoise(WorkerStage):
    """Clips the difference to an L2 norm of `clip`, and adds noise of standard deviation `noise` * `clip`.

    Raises PayloadError when the difference is not finite.
    """

    def __init__(self, clip: float, noise: float, crew: Crew, timer: ProtectionTimer | None = None) -> None:
        self.clip, self.noise, self._crew, self._stream = clip, noise, crew, SecretStream()
        self._timer = timer or ProtectionTimer()

    def forward(self, update: Draft) -> None:
        with self._timer.protecting():
            self._hide(update)

    def _hide(self, update: Draft) -> None:
        values = update.vector.cpu().numpy()  # shared with the vector where that is in main memory
        length = norm(values, self._crew)
        if not np.isfinite(length):
            raise PayloadError(NOT_FINITE)
        if length > self.clip * MARGIN:
            share = np.float32(MARGIN * self.clip / length)
            self._crew.each(lambda span: np.multiply(values[span], share, out=values[span]), spans(values.size))
        add_noise(values, self.noise * self.clip, self._stream)
        if update.vector.device.type != "cpu":
            update.vector.copy_(torch.from_numpy(values))
