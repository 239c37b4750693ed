"""Counts of malformed frames by sender: the first is reported at once, later ones in summaries."""

from __future__ import annotations

INTERVAL = 30.0
"""Seconds between two summaries of one sender."""

MOST_SENDERS = 1024
"""Senders that are remembered without looking for those whose interval is over."""


class MalformedFrames:
    """Counts of malformed frames; all strangers are one sender, so that fresh keys cannot fill the ledger.

    >>> drops = MalformedFrames()
    >>> [drops.count("ann", now) for now in (0.0, 1.0, 2.0, 40.0)]
    [1, 0, 0, 3]
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._told_at: dict[str, float] = {}

    def count(self, sender: str, now: float) -> int:
        """Count one more, and return how many to report now, 0 for later."""
        self._counts[sender] = self._counts.get(sender, 0) + 1
        if len(self._told_at) > MOST_SENDERS:
            self._told_at = {name: told for name, told in self._told_at.items() if now < told + INTERVAL}
        if now < self._told_at.get(sender, -INTERVAL) + INTERVAL:
            return 0
        self._told_at[sender] = now
        return self._counts.pop(sender)
