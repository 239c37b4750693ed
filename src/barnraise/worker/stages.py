"""Stages through which an update leaves a worker, one after the other.

Each stage runs `forward`, from the steps that were taken to the bytes that are sent, and then, in reverse, is told the
`sent` update: a stage that keeps a part knows by then how much that is. A stage between the steps and the wire is a
class here and a line in `update_path.UpdatePath`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from barnraise.compression.base import Codec, Encoded
from barnraise.compression.feedback import ErrorFeedback, gathered
from barnraise.core import ranges
from barnraise.core.errors import PayloadError
from barnraise.core.threads import SPAN, Crew, spans
from barnraise.core.types import Ranges

NOT_FINITE = "an update with elements that are not finite"

MARGIN = 1.0 - 2.0**-20
"""Factor of its limit to which a longer update is scaled: float32 rounds, and codecs round further."""

MOST_TRIES = 30
"""Times that an update is scaled again because its codec had rounded it up beyond the limit."""


@dataclass
class Draft:
    """An update of `version` on its way: `vector` (float32 [d]) starts as the task's start and is overwritten.

    A stage that keeps it puts another one there, whose content does not matter. Its ranges `covered` (None: all of it)
    are sent, as `encoded` by `codec`, or `masked`.
    """

    vector: Tensor
    end: Tensor
    scale: float
    version: int
    covered: Ranges | None
    codec: Codec
    encoded: Encoded | None = None
    masked: bytes | None = None

    @property
    def whole(self) -> bool:
        """Return whether all of it is sent: then the codec refuses it when it is not finite."""
        return self.covered is None or ranges.size(self.covered) == self.vector.numel()

    def encode(self) -> Encoded:
        """Encode the sent ranges.

        Raises PayloadError when it is not finite.
        """
        self.encoded = self.codec.encode(gathered(self.vector, self.covered), self.version)
        return self.encoded


class WorkerStage:
    """Base class of stages.

    A subclass overrides the methods that it needs.
    """

    def forward(self, update: Draft) -> None:
        """Apply the stage to an update."""

    def sent(self, update: Draft) -> None:
        """Handle the update as it will be sent."""

    def refused(self, encoded: Encoded, codec: Codec, covered: Ranges | None) -> None:
        """Handle the refusal of a sent update."""


class Difference(WorkerStage):
    """The pseudo-gradient: where the task began less where it led, times `scale`, and what error feedback kept.

    Raises PayloadError when it is not finite where the codec does not see it.
    """

    def __init__(self, crew: Crew, feedback: ErrorFeedback | None = None) -> None:
        self._crew, self.feedback = crew, feedback

    def forward(self, update: Draft) -> None:
        begin, reached, scale = update.vector.numpy(), update.end.numpy(), np.float32(update.scale)
        add = self.feedback.adder(update.vector) if self.feedback else None

        def subtract(span: slice) -> None:
            for few in spans(span.stop - span.start, SPAN // 4):  # a core's cache holds them
                part = slice(span.start + few.start, span.start + few.stop)
                own = begin[part]
                with np.errstate(over="ignore", invalid="ignore"):
                    np.subtract(own, reached[part], out=own)
                    if scale != 1.0:
                        own *= scale
                if add is not None:
                    add(part)
                if not (update.whole or np.isfinite(own).all()):
                    raise PayloadError(NOT_FINITE)

        self._crew.each(subtract, spans(begin.size))


class Addition(WorkerStage):
    """Adds what error feedback kept, where another stage comes between it and the difference."""

    def __init__(self, feedback: ErrorFeedback) -> None:
        self.feedback = feedback

    def forward(self, update: Draft) -> None:
        self.feedback.add(update.vector)


class Feedback(WorkerStage):
    """Keeps the parts that are left out, which `Difference` adds to the next update."""

    def __init__(self, feedback: ErrorFeedback) -> None:
        self.feedback = feedback

    def sent(self, update: Draft) -> None:
        assert update.encoded is not None
        update.vector = self.feedback.keep(update.vector, update.encoded, update.codec, update.covered)

    def refused(self, encoded: Encoded, codec: Codec, covered: Ranges | None) -> None:
        self.feedback.give_back(encoded, codec, covered)


class Encode(WorkerStage):
    """Lets the codec choose and write the sent elements."""

    def forward(self, update: Draft) -> None:
        update.encode()


class Clip(WorkerStage):
    """Scales an update down until the *sent* update, as it decodes, has an L2 norm of at most `limit`.

    That holds for any residual and any rounding of the codec: the bytes are measured. The part that is cut off is
    dropped; kept in the residual, it would come again with the next update, which would be cut in turn, and so grow
    forever.
    """

    def __init__(self, limit: float, crew: Crew) -> None:
        self.limit, self._crew = limit, crew

    def forward(self, update: Draft) -> None:
        for _ in range(MOST_TRIES):
            encoded = update.encoded
            assert encoded is not None
            norm = update.codec.open(encoded, encoded.size, update.version).norm()
            if norm <= self.limit:
                return
            self.scale(update.vector, np.float32(MARGIN * self.limit / norm))
            update.encode()
        update.vector.zero_()
        update.encode()

    def scale(self, vector: Tensor, share: np.float32) -> None:
        """Multiply `vector` by `share`, in place."""
        values = vector.numpy()

        def multiply(span: slice) -> None:
            values[span] *= share

        self._crew.each(multiply, spans(values.size))
