"""How a read model follows a ledger: reducers take its rows in order, each row once, and keep what follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

import msgspec

from barnraise.ledger import Decision, LedgerView, Noted
from barnraise.ledger.cursor import Span
from barnraise.ledger.notes import Note

Kinds: TypeAlias = tuple[type[Decision | Note], ...]
"""Decisions other than notes, and kinds of notes."""


class Reducer(msgspec.Struct):
    """Base of what is folded from a ledger's rows. Its fields are all its state, so that a file can hold it."""

    kinds: ClassVar[Kinds]
    """The rows that it takes."""

    def add(self, row_id: int, decision: Any, view: LedgerView) -> None:
        """Take the next row. It may look up earlier rows in the ledger (`view`), and no later ones."""
        raise NotImplementedError


class Timeline(msgspec.Struct):
    """The times of all rows: by controller (`epoch`) the first and the last."""

    spans: dict[int, tuple[float, float]] = msgspec.field(default_factory=dict)

    def add(self, spans: Sequence[Span]) -> None:
        """Take the spans of further rows."""
        for epoch, first, last in spans:
            known = self.spans.get(epoch, (first, last))
            self.spans[epoch] = min(known[0], first), max(known[1], last)

    @property
    def end(self) -> float:
        """Return the time of the newest row on the run's clock, 0 when there is none."""
        return max((last for _, last in self.spans.values()), default=0.0)

    @property
    def seconds(self) -> float:
        """Return the sum of the controllers' times, without the time between them."""
        return sum((last - first for first, last in self.spans.values()), 0.0)


class RowFeed:
    """Gives reducers the rows of a ledger from row `after` on. `advance` costs what the new rows cost."""

    def __init__(
        self, view: LedgerView, reducers: Sequence[Reducer], *, after: int = 0, timeline: Timeline | None = None
    ) -> None:
        self._view, self._timeline = view, timeline
        self._takers: dict[type[Decision | Note], list[Callable[[int, Any, LedgerView], None]]] = {}
        for reducer in reducers:
            for kind in reducer.kinds:
                self._takers.setdefault(kind, []).append(reducer.add)
        self._cursor = view.cursor(self._takers, after)

    @property
    def rows(self) -> int:
        """Return how many rows of the ledger the reducers have seen."""
        return self._cursor.position

    def advance(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Take all rows that are committed by now, fewer if it is `stopped`. Raises StorageError, CorruptionError."""
        for batch in self._cursor.new():
            for row_id, decision in batch.rows:
                kind = type(decision.note) if isinstance(decision, Noted) else type(decision)
                for take in self._takers[kind]:
                    take(row_id, decision, self._view)
            if self._timeline is not None:
                self._timeline.add(batch.spans)
            if stopped():
                return
