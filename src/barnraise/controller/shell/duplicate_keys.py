"""Two processes with the keys of one node: the first keeps its place, and the second must take other keys.

A worker that was killed and started again greets as a new session under the same keys; so does a machine whose home
folder is a copy of another one's, and a thief of the keys. The difference is that the process in place still answers.
So a new session waits while the connection of the one before stands and that one was not asked yet. If it answers, the
place is its own, however often others ask; if it is silent for `patience`, it has ended.

Pure: time is an argument.
"""

from __future__ import annotations

from enum import Enum

PATIENCE = 3.0
"""Seconds that a process which has a node's place has for its answer; two heartbeats if that is more."""

FORGOTTEN = 10.0
"""Seconds after which an answer is out of date: a process that asks greets every second."""

REASON = (
    "another process with the keys of this node is at work, as where a home folder was copied: this one needs keys and "
    "a name of its own"
)


class KeyUse(Enum):
    """The verdict on a process that asks for a node's place."""

    WAIT = 0
    TAKEN = 1
    FREE = 2


class DuplicateKeys:
    """Nodes whose place another process asked for."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[float, float, bool]] = {}  # first and last time, and whether it was answered

    def heard(self, node: str) -> None:
        """Record that the process in place greeted again."""
        if node in self._asked:
            self._asked[node] = *self._asked[node][:2], True

    def asked(self, node: str, now: float, patience: float) -> KeyUse:
        """Return the verdict on another process that greets as this node."""
        first, last, answered = self._asked.get(node, (now, now, False))
        if now - last > FORGOTTEN:
            first, answered = now, False
        if answered:  # the next time it has to answer again
            self._asked[node] = now, now, False
            return KeyUse.TAKEN
        if now - first >= patience:
            del self._asked[node]
            return KeyUse.FREE
        self._asked[node] = first, now, False
        return KeyUse.WAIT

    def forget(self, node: str) -> None:
        """Forget a node whose place is free."""
        self._asked.pop(node, None)
