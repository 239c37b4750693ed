"""Drawn blocks of formulas as two arrays, in which one process hands them to another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from barnraise.data.sat.blocks import DrawnFormula
from barnraise.data.sat.examples import Example
from barnraise.data.tokenizers import TokenIds

ROW = np.dtype(
    [
        ("outcome", "u1"), ("is_partner", "?"), ("key", "<u8"), ("cells", "<u8"), ("size", "<u4"), ("start", "<u4"),
        ("satisfiable", "?"), ("backtracks", "<u4"), ("decisions", "<u4"),
    ]
)  # fmt: skip
"""A drawn formula; the token ids of its example are `size` of those of the block."""

ID = np.dtype("<u2")
"""A token id: no vocabulary is larger."""


@dataclass(frozen=True)
class PackedBlock:
    """The formulas of a block as `ROW`, a partner behind its formula, and the token ids of all examples."""

    rows: npt.NDArray[np.void]
    ids: npt.NDArray[np.uint16]

    @classmethod
    def of(cls, block: Iterable[DrawnFormula]) -> PackedBlock:
        """Pack the formulas of a block."""
        rows: list[tuple[Any, ...]] = []
        ids: list[TokenIds] = [np.zeros(0, np.uint32)]
        for drawn in block:
            _add(drawn, rows, ids)
            if drawn.partner is not None:
                _add(drawn.partner, rows, ids, is_partner=True)
        return cls(np.array(rows, ROW), np.concatenate(ids).astype(ID))

    def unpacked(self) -> Iterator[DrawnFormula]:
        """Yield the formulas of the block."""
        ids, end = self.ids.astype(np.uint32), 0
        before: DrawnFormula | None = None
        for outcome, is_partner, key, cells, size, start, satisfiable, backtracks, decisions in self.rows.tolist():
            if outcome:
                drawn = DrawnFormula(outcome, key)
            else:
                found = Example(ids[end : end + size], start, satisfiable, backtracks, decisions)
                drawn = DrawnFormula(outcome, key, found, cells)
                end += size
            if before is not None:
                yield before._replace(partner=drawn) if is_partner else before
            before = None if is_partner else drawn
        if before is not None:
            yield before


def _add(drawn: DrawnFormula, rows: list[tuple[Any, ...]], ids: list[TokenIds], *, is_partner: bool = False) -> None:
    size, rest = 0, (0, False, 0, 0)
    if drawn.example is not None:
        size, rest = len(drawn.example.ids), drawn.example[1:]
        ids.append(drawn.example.ids)
    rows.append((drawn.outcome, is_partner, drawn.key, drawn.cells, size, *rest))
