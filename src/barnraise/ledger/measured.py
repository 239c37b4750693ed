"""Notes of measurements by named metrics, with samples of the text that a version generates."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from barnraise.ledger.note import Note


class TextSample(msgspec.Struct, frozen=True, array_like=True):
    """A text that a version generated after a prompt, both of bounded length, as the model wrote it."""

    prompt: str
    text: str


class Measured(Note, frozen=True, gc=False):
    """The values of a version by the run's metrics, which the controller measured, and samples of its text.

    `tokens` are those in the newest version when the measurement ended.
    """

    version: int
    tokens: int
    values: dict[str, float]
    samples: tuple[TextSample, ...] = ()


class MetricFailed(Note, frozen=True, gc=False):
    """A metric gave no figure for a version, for the first time in this process."""

    sentence: ClassVar[str] = "metric {metric} has no figure for version {version}: {reason}"

    version: int
    metric: str
    reason: str
