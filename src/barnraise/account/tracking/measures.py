"""The figures that trackers show, from the ledger's rows."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import chain, count
from typing import ClassVar

import msgspec

from barnraise.account.markdown import fenced
from barnraise.account.metrics import perplexity
from barnraise.account.reducer import Kinds, Reducer
from barnraise.account.tracking.base import VersionFigures
from barnraise.ledger import Judged, LedgerView, Noted, VersionClosed, notes

SAMPLES = "evaluation/samples"
"""The name under which trackers show the text that a version generated."""

_ODD = re.compile(r"[^\w .:/-]", re.ASCII)
"""Letters that some tracker refuses in the name of a figure."""


class Measures(Reducer):
    """Makes a point of each version that is closed, evaluated or measured; the caller clears `points`.

    `open` are the accepted contributions that are in no version yet: loss, tokens and staleness by assignment. `names`
    are the trackers' names of metrics' figures, and whose they are.
    """

    kinds: ClassVar[Kinds] = (Judged, VersionClosed, notes.Evaluated, notes.Measured)

    tokens: int = 0
    open: dict[int, tuple[float, int, int]] = msgspec.field(default_factory=dict)
    points: list[VersionFigures] = msgspec.field(default_factory=list)
    names: dict[str, str] = msgspec.field(default_factory=dict)

    def add(self, row_id: int, decision: object, view: LedgerView) -> None:
        if isinstance(decision, Judged):
            if decision.contributes:
                self.open[decision.assignment] = decision.claim.loss, decision.tokens, decision.staleness
        elif isinstance(decision, VersionClosed):
            self._closed(row_id, decision)
        elif isinstance(decision, Noted) and isinstance(decision.note, notes.Evaluated):
            loss = decision.note.loss
            if loss is not None:
                figures = {"evaluation/loss": loss, "evaluation/perplexity": perplexity(loss)}
                self.points.append(VersionFigures(row_id, decision.note.version, decision.time, figures))
        elif isinstance(decision, Noted) and isinstance(decision.note, notes.Measured):
            note = decision.note
            if note.values or note.samples:
                figures = {self._name(name): value for name, value in note.values.items()}
                text = as_markdown(note.samples)
                self.points.append(VersionFigures(row_id, note.version, decision.time, figures, text))

    def _name(self, figure: str) -> str:
        """Return a name that every tracker takes; figures that differ in other letters alone get numbers."""
        plain = f"evaluation/{_ODD.sub('_', figure)}"
        for name in chain([plain], (f"{plain}_{number}" for number in count(2))):
            if self.names.setdefault(name, figure) == figure:
                return name
        raise AssertionError("there is always another number")

    def _closed(self, row_id: int, decision: VersionClosed) -> None:
        self.tokens += decision.tokens
        known = [self.open.pop(number) for number in decision.contributions if number in self.open]
        figures = {
            "training/tokens": float(self.tokens),
            "training/nodes": float(decision.num_nodes),
            "training/contributions": float(len(decision.contributions)),
        }
        trained = [(loss, tokens) for loss, tokens, _ in known if math.isfinite(loss) and tokens]
        if trained:
            weight = sum(tokens for _, tokens in trained)
            figures["training/loss"] = sum(loss * tokens for loss, tokens in trained) / weight
        if known:
            figures["training/staleness"] = sum(staleness for _, _, staleness in known) / len(known)
        self.points.append(VersionFigures(row_id, decision.version, decision.time, figures))


def as_markdown(samples: Sequence[notes.TextSample]) -> str:
    """Return samples as Markdown that shows each as it is, whatever a model wrote."""
    return "\n".join(line for sample in samples for line in (*fenced(f"{sample.prompt}\n-> {sample.text}"), ""))
