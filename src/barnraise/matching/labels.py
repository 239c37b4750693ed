"""Ranks as numbers: a label for each tuple in use, larger for the larger tuple, so that arrays of them compare."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any


class Labels:
    """Counts the users of each tuple, and gives a new tuple a label between its neighbours'."""

    def __init__(self) -> None:
        self._tuples: list[Any] = []  # in order
        self._labels: dict[Any, float] = {}
        self._users: dict[Any, int] = {}

    def take(self, key: Any) -> tuple[float, dict[float, float]]:
        """Return the label of `key`, and the changed labels as old -> new."""
        self._users[key] = self._users.get(key, 0) + 1
        if key in self._labels:
            return self._labels[key], {}
        at = bisect_left(self._tuples, key)
        low = self._labels[self._tuples[at - 1]] if at else None
        high = self._labels[self._tuples[at]] if at < len(self._tuples) else None
        self._tuples.insert(at, key)
        self._labels[key] = label = _between(low, high)
        if label in (low, high):
            return self._anew(key)
        return label, {}

    def give_back(self, key: Any) -> None:
        self._users[key] -= 1
        if not self._users[key]:
            del self._users[key], self._labels[key]
            del self._tuples[bisect_left(self._tuples, key)]

    def _anew(self, newest: Any) -> tuple[float, dict[float, float]]:
        changed = {self._labels[key]: float(place) for place, key in enumerate(self._tuples) if key != newest}
        self._labels = {key: float(place) for place, key in enumerate(self._tuples)}
        return self._labels[newest], changed


def _between(low: float | None, high: float | None) -> float:
    if low is None:
        return 0.0 if high is None else high - 1.0
    return low + 1.0 if high is None else low + (high - low) / 2
