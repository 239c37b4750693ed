"""The movement of a worker's parameters to a version, with the worker's own work that the version lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from barnraise.compression.fast import loops
from barnraise.core.ranges import overlap
from barnraise.core.threads import SERIAL, Crew, spans
from barnraise.worker.update_path import Opened


@dataclass(frozen=True)
class VersionOffset:
    """A version `there`, the `start` of the running task, and a worker's work that the version lacks.

    `share`: of the steps since `start` and of the `unmerged` updates, `keep`: of the `residual`. All vectors are
    float32 [d]. The worker moves by `rest` of the way to the version.
    """

    there: Tensor
    start: Tensor
    unmerged: Sequence[Opened]
    share: float
    residual: Tensor | None
    keep: float
    rest: float

    def overwrite(self, here: Tensor, crew: Crew) -> None:
        """Overwrite `here`, where the steps since `start` led, with the offset from there, by all threads."""
        compiled, share = loops(len(here)), self.share
        factors = np.array([share, self.keep, self.rest], np.float32)
        residual = self.there if self.residual is None else self.residual

        def merge(span: slice) -> None:
            if compiled is not None:
                vectors = [vector.numpy()[span] for vector in (self.there, self.start, here, residual)]
                compiled.offset(*vectors, factors)
            else:
                for few in spans(span.stop - span.start, SERIAL):
                    part = slice(span.start + few.start, span.start + few.stop)
                    own = torch.add(self.there[part], here[part] - self.start[part], alpha=share)
                    if self.keep:
                        own.sub_(residual[part], alpha=self.keep)
                    torch.sub(own, here[part], out=here[part])
                    here[part].mul_(self.rest)
            for covered, reader in self.unmerged:
                for piece in overlap(covered, span.start, span.stop):
                    reader.add(piece.place, here.numpy()[piece.start : piece.stop], -share * self.rest)

        crew.each(merge, spans(len(here)))
