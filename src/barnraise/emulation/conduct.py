"""How a node behaves towards its controller: what it says and when, whatever comes of its tasks."""

from __future__ import annotations

from barnraise.core.types import NodeProfile
from barnraise.worker.machine import Worker


class Conduct:
    """That of an honest node."""

    def worker(self, session: int) -> Worker:
        """The state machine of a new process."""
        return Worker(session, NodeProfile())

    def pace(self, assignment: int) -> float:
        """How many times as long as the machine's rate says it takes for a task."""
        return 1.0


HONEST = Conduct()
