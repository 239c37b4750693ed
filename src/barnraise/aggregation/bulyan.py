"""Bulyan (El Mhamdi et al., 2018, "The Hidden Vulnerability of Distributed Learning in Byzantium", section 4)."""

from __future__ import annotations

import numpy as np

from .base import Array, Rule, mean_rows
from .gram import squared_distances
from .krum import krum_scores
from .median import midpoint
from .network import apply, missing_as_infinite, sorting


class Bulyan(Rule):
    """Takes theta = n-2f updates one by one by Krum, then in each coordinate the mean around the median.

    That is the mean of the beta = theta-2f values closest to the median; of equally close ones the smaller. Needs n >=
    4f+3. Ties in Krum's scores are resolved to the first update. At f <= 2 they occur: the last choices compare
    distances to one neighbour, which two nearest neighbours share.
    """

    name = "bulyan"
    uses_gram = True

    def __init__(self, f: int) -> None:
        super().__init__(f=f)
        self.f = f

    def mix(self, gram: Array | None, shares: Array | None) -> Array | None:
        assert gram is not None
        distances = squared_distances(gram)
        remaining, chosen = list(range(len(gram))), []
        for _ in range(len(gram) - 2 * self.f):
            scores = krum_scores(distances[np.ix_(remaining, remaining)], self.f)
            chosen.append(remaining.pop(int(np.argmin(scores))))
        return np.eye(len(gram))[sorted(chosen)]

    def reduce(self, block: Array, out: Array) -> None:
        missing_as_infinite(block)
        rows = apply(sorting(len(block)), block)
        mean_around_median(rows, len(rows) - 2 * self.f, out)

    def bound(self, largest: Array) -> float:
        honest = float(np.sort(largest)[-1 - self.f])  # bounds the median; the closest values are at most twice as far
        return 3 * (len(largest) - 2 * self.f) * honest


def mean_around_median(rows: list[Array], count: int, out: Array) -> None:
    """Write the mean of the `count` values closest to the median of each column into `out` [c].

    `rows`: arrays [c] in ascending order. The closest values are `count` consecutive ones. The window starts at the
    lowest; while its lowest value s_w is farther from the median than the next above, s_{w+count}, it moves up by one.
    """
    n = len(rows)
    median = np.empty_like(rows[0])
    midpoint(rows[(n - 1) // 2], rows[n // 2], median)
    window = [row.copy() for row in rows[:count]]
    for start in range(n - count):
        with np.errstate(invalid="ignore"):  # infinity minus infinity moves nothing
            moves = median - rows[start] > rows[start + count] - median
        np.copyto(window[start % count], rows[start + count], where=moves)
    mean_rows(window, out)
