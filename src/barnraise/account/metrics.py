"""The values of a run's metrics and the samples of its text, version by version, from the ledger."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from barnraise.account.reducer import Kinds, Reducer
from barnraise.core.text import printable
from barnraise.ledger import LedgerView, Noted, notes
from barnraise.ledger.outcomes import LossPoint
from barnraise.training.metrics.catalog import PERPLEXITY

LARGEST_EXPONENT = 700.0

SHOWN_PROMPT, SHOWN_TEXT = 60, 160
"""Characters of a prompt, and of the text after it, in one line."""


class MetricPoint(msgspec.Struct, frozen=True):
    """The values of a version by metric."""

    version: int
    values: dict[str, float]


class VersionSamples(msgspec.Struct, frozen=True):
    """The samples of a version."""

    version: int
    samples: tuple[notes.TextSample, ...]


class Metrics(Reducer):
    """Keeps the values of each version that was measured, and the first and the newest samples."""

    kinds: ClassVar[Kinds] = (notes.Measured,)

    points: list[MetricPoint] = msgspec.field(default_factory=list)
    first: VersionSamples | None = None
    newest: VersionSamples | None = None

    def add(self, row_id: int, decision: object, view: LedgerView) -> None:
        if isinstance(decision, Noted) and isinstance(note := decision.note, notes.Measured):
            if note.values:
                self.points.append(MetricPoint(note.version, note.values))
            if note.samples:
                self.newest = VersionSamples(note.version, note.samples)
                self.first = self.first or self.newest


@dataclass(frozen=True)
class Measurements:
    """The values of each version by metric, the oldest version first, and the first and the newest samples."""

    values: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    first: VersionSamples | None = None
    newest: VersionSamples | None = None

    @property
    def names(self) -> list[str]:
        """Return the names of all metrics that have a value."""
        return list(dict.fromkeys(name for values in self.values.values() for name in values))

    @property
    def latest(self) -> dict[str, tuple[int, float]]:
        """Return the newest value of each metric, with its version."""
        return {name: (version, value) for version, values in self.values.items() for name, value in values.items()}


def measurements(metrics: Metrics, losses: Sequence[LossPoint], run_file: Mapping[str, Any]) -> Measurements:
    """Return what was measured, with the perplexity of each measured loss where the run file names that metric."""
    found: dict[int, dict[str, float]] = {}
    if PERPLEXITY in run_file.get("evaluation", {}).get("metrics", ()):
        found = {point.version: {PERPLEXITY: perplexity(point.loss)} for point in losses}
    for point in metrics.points:
        found[point.version] = found.get(point.version, {}) | point.values
    return Measurements(dict(sorted(found.items())), metrics.first, metrics.newest)


def perplexity(loss: float) -> float:
    """Return e to the power of a loss in nats a token."""
    return math.exp(min(loss, LARGEST_EXPONENT))


def fact_lines(found: Measurements) -> Iterator[tuple[str, str]]:
    """Yield the newest values and the newest sample as labelled lines."""
    if latest := found.latest:
        newest = max(version for version, _ in latest.values())
        parts = (
            f"{printable(name)} {value_text(value)}{'' if version == newest else f' (version {version})'}"
            for name, (version, value) in latest.items()
        )
        yield "metrics", f"{', '.join(parts)} at version {newest} (held out)"
    if found.newest is not None:
        yield "sample", f"version {found.newest.version}: {one_line(found.newest.samples[0])}"


def one_line(sample: notes.TextSample) -> str:
    """Return a sample on one line: the end of its prompt, and the beginning of its text."""
    prompt = printable(sample.prompt[-4 * SHOWN_PROMPT :], 4 * SHOWN_PROMPT)
    cut = prompt if len(prompt) <= SHOWN_PROMPT else f"...{prompt[3 - SHOWN_PROMPT :]}"
    return f"{cut} -> {printable(sample.text, SHOWN_TEXT) or '(nothing)'}"


def value_text(value: float) -> str:
    """Return a value for readers.

    >>> value_text(0.3125), value_text(1234.5678)
    ('0.3125', '1235')
    """
    return f"{value:.4g}"


def figures(found: Measurements) -> dict[str, Any]:
    """Return the newest values and samples for programs; empty where the run has neither."""
    told: dict[str, Any] = {}
    if latest := found.latest:
        told["metrics"] = {name: value for name, (_, value) in latest.items()}
    if found.newest is not None:
        texts = [{"prompt": sample.prompt, "text": sample.text} for sample in found.newest.samples]
        told["samples"] = {"version": found.newest.version, "texts": texts}
    return told
