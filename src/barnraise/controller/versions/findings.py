"""What workers found when they measured a version: pieces of the held-out rows, each measured once or several times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from barnraise.controller.state.state import KeptFinding
from barnraise.core.types import RowRange
from barnraise.ledger.notes import Disputed

SHARE, LEAST = 2e-3, 1e-3
"""Part of a loss, and nats a token, by which two honest measurements of the same rows may differ: machines add in
different orders, and a version that is reached by taking deltas back is the same but for rounding."""

Pieces: TypeAlias = Mapping[RowRange, Sequence[KeptFinding]]
"""Findings by the rows that were measured."""


def enough(left: int, sizes: Iterable[int]) -> int:
    """How many nodes that take so many rows each (`sizes`) it takes at most, so that each of them gets something.

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
    """Whether all measurements of one piece are the same as the first, but for rounding: the loss in nats a token, and
    the number of predictions exactly."""
    first, *others = found
    return all(
        other.weight == first.weight
        and (not first.weight or math.isclose(other.loss, first.loss, rel_tol=SHARE, abs_tol=LEAST))
        for other in others
    )


def dispute(found: Sequence[KeptFinding]) -> Disputed:
    """The note that the measurements of one piece do not agree."""
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
    """The loss over all predictions, nats a token: of each piece the mean of its measurements counts for its number of
    predictions. NaN where nothing was predicted."""
    told = [(sum(one.loss for one in found) / len(found), found[0].weight) for found in pieces]
    weight = sum(each for _, each in told)
    return sum(loss * each for loss, each in told if each) / weight if weight else math.nan
