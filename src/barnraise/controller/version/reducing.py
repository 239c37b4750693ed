"""The pseudo-gradient of a version: the aggregation rule over its rows, read piece by piece.

What the rule mixes is settled before anything of the version is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from barnraise.aggregation.base import Array, Combination, Rule
from barnraise.controller.version.base import Making, Row, Stage
from barnraise.core.ranges import covers, pieces
from barnraise.core.threads import Crew
from barnraise.core.types import ParameterRange


class Reduce(Stage):
    """The rule makes one of the rows."""

    def __init__(self, rule: Rule, crew: Crew) -> None:
        self._rule, self._crew = rule, crew
        self._gradient: PseudoGradient | None = None

    def prepare(self, making: Making) -> None:
        gradient = self._gradient = PseudoGradient(self._rule, making, self._crew)
        making.span = slice(gradient.start, gradient.stop)

    def growth(self, making: Making, largest: float, before: Mapping[str, float], after: dict[str, float]) -> float:
        assert self._gradient is not None
        after["the aggregate"] = self._gradient.largest
        return self._gradient.largest

    def step(self, making: Making, piece: slice, values: Array) -> Array:
        assert self._gradient is not None
        with np.errstate(over="ignore", invalid="ignore"):  # of updates that a robust rule leaves out
            self._gradient.into(piece.start, values)
        return values

    def end(self, making: Making) -> None:
        self._gradient = None


@dataclass(frozen=True)
class _Part:
    """A range of the parameters, the rows that cover it, and what the rule makes of them."""

    parameters: ParameterRange
    rows: Sequence[Row]
    combination: Combination
    scale: float | None


class PseudoGradient:
    """What the rule makes of a version's rows, for each of the pieces that the ranges of its slots cut each other into.

    Each of the version's scales multiplies the aggregate of one of the pieces, in order, where there are several. A
    piece whose rows are lost, and what lies between two, is zero. InputError where the rule takes no such rows.
    """

    def __init__(self, rule: Rule, making: Making, crew: Crew) -> None:
        cut, scales = pieces(slot.parameters for slot in making.slots), making.scales
        self.start, self.stop = cut[0].start, cut[-1].stop
        self._parts = []
        for index, piece in enumerate(cut):
            there = [row for row in making.rows if covers(row.parameters, piece)]
            if there:
                combination = _combined(rule, piece, there, crew)
                scale = float(scales[index]) if scales and len(cut) > 1 else None
                self._parts.append(_Part(piece, there, combination, scale))

    @property
    def largest(self) -> float:
        """No element, and nothing that is summed up to one, is larger in magnitude."""
        bounds = (
            part.combination.bound(np.array([row.largest for row in part.rows]))
            * max(1.0, abs(1.0 if part.scale is None else part.scale))
            for part in self._parts
        )
        return float(np.max([0.0, *bounds]))

    def into(self, start: int, out: Array) -> None:
        """The pseudo-gradient of the parameters from `start` on into `out` (float32)."""
        stop, covered = start + out.size, 0
        for part in self._parts:
            first, last = max(start, part.parameters.start), min(stop, part.parameters.stop)
            if first < last:
                out[covered : first - start] = 0
                target, covered = out[first - start : last - start], last - start
                part.combination.into(first - part.parameters.start, target)
                if part.scale is not None:
                    target *= np.float32(part.scale)
        out[covered:] = 0


def _combined(rule: Rule, piece: ParameterRange, rows: Sequence[Row], crew: Crew) -> Combination:
    def read(row: int, start: int, out: Array) -> None:
        rows[row].read(piece.start + start, out)

    weights = [row.weight for row in rows]
    return Combination(rule, read, len(rows), piece.stop - piece.start, weights, crew=crew)
