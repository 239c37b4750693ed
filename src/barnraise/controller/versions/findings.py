"""The findings of workers that measured a version: pieces of the held-out rows, measured once or several times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from barnraise.controller.state.state import KeptFinding
from barnraise.core.types import RowRange
from barnraise.ledger.notes import Disputed

SHARE, LEAST = 2e-3, 1e-3
"""Share of a loss, and nats a token, by which two honest measurements of the same rows may differ: machines add in
different orders, and a version that is reached by undoing deltas is exact only up to rounding."""

Pieces: TypeAlias = Mapping[RowRange, Sequence[KeptFinding]]
"""Findings by the rows that were measured."""


def enough(left: int, sizes: Iterable[int]) -> int:
    """Return how many nodes with these `sizes` it takes at most, so that each of them gets something.

    >>> enough(100, [10, 60, 30, 20]), enough(100, [10]), enough(100, [10, 120])
    (3, 1, 1)
    """
    count = 0
    for size in sorted(sizes, reverse=True):
        if left <= 0:
            break
        left, count = left - size, count + 1
    return count


def agree(found: Sequence[KeptFinding]) -> bool:
    """Return whether all measurements of one piece agree: the loss up to rounding, and the predictions exactly.

    The loss is in nats a token.
    """
    first, *others = found
    return all(
        other.weight == first.weight
        and (not first.weight or math.isclose(other.loss, first.loss, rel_tol=SHARE, abs_tol=LEAST))
        for other in others
    )


def dispute(found: Sequence[KeptFinding]) -> Disputed:
    """Make the note that the measurements of one piece do not agree."""
    work = found[0].work
    return Disputed(
        work.base,
        work.rows[0].start,
        work.rows[0].stop,
        tuple(finding.work.node for finding in found),
        tuple(finding.loss for finding in found),
        tuple(finding.weight for finding in found),
    )


def mean(pieces: Iterable[Sequence[KeptFinding]]) -> float:
    """Return the loss over all predictions, nats a token.

    Each piece counts the mean of its measurements by its number of predictions. NaN without predictions.
    """
    told = [(sum(one.loss for one in found) / len(found), found[0].weight) for found in pieces]
    weight = sum(each for _, each in told)
    return sum(loss * each for loss, each in told if each) / weight if weight else math.nan
