"""A node's conduct towards its controller: its messages and timing, apart from its tasks."""

from __future__ import annotations

from barnraise.core.types import NodeProfile
from barnraise.worker.machine import Worker


class Conduct:
    """The conduct of an honest node."""

    def worker(self, session: int) -> Worker:
        """Return the state machine of a new process."""
        return Worker(session, NodeProfile())

    def pace(self, assignment: int) -> float:
        """Return the factor by which a task takes longer than the machine's rate implies."""
        return 1.0


HONEST = Conduct()
