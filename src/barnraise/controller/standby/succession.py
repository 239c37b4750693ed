"""The decision of whether a standby becomes the controller: a state machine without clock, socket, file or randomness.

A standby that follows is silent towards workers. It becomes a candidate once the controller has not answered it for
half of its lease: workers may greet it then, and nothing is decided, acknowledged or numbered with a higher epoch. It
returns to following as soon as the controller answers. It becomes the controller once the lease is over and enough of
the workers that lived at the controller's last answer have come to it, for a worker comes only after it has lost the
controller itself; or once the host says so.

Time is the number of seconds for which the controller has been silent, as the standby counts them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum

PROMPT = 30.0
"""Seconds of silence beyond the lease in which a majority that comes counts at once."""

FRESH = 15.0
"""Seconds for which a greeting counts. A worker without an answer tries the other address, and returns within these
seconds."""


class Stage(Enum):
    """The stages of a standby: from follower to controller."""

    FOLLOWING = "following"
    CANDIDATE = "candidate"
    CONFIRMED = "confirmed"


class Succession:
    """Counts the greetings of one standby.

    A majority is more than half of the living workers, and more than half of their owners; an owner is with the
    candidate when more than half of its living workers are. With exactly half the controller may continue with the
    other half, so the standby does not take over. Where no worker lived, one that is known is enough.

    A majority that comes late, when the controller was silent for long already, has perhaps worked for it until now:
    its work in that time would be lost. Then it must last as long as the controller was silent before.
    """

    def __init__(self, lease: float) -> None:
        self.lease = lease
        self.stage = Stage.FOLLOWING
        self.told = False  # told by the host to take over with any workers
        self.owners: Mapping[str, str] = {}  # living workers -> owners
        self.since: float | None = None  # the silence at which the majority was complete
        self._greetings: dict[str, float] = {}

    @property
    def present(self) -> int:
        """Return how many of those that count have come."""
        return len(self._greetings)

    @property
    def wanted(self) -> int:
        """Return how many of the living have to come."""
        return len(self.owners) // 2 + 1

    @property
    def lasts_until(self) -> float:
        """Return the silence until which a complete majority has to last."""
        assert self.since is not None
        return self.since if self.since <= self.lease + PROMPT else 2 * self.since - self.lease

    def expect(self, owners: Mapping[str, str]) -> None:
        """Record the workers that lived at the controller's last answer, each with its owner."""
        self.owners = dict(owners)

    def greeted(self, worker: str, silence: float) -> None:
        """Record that a worker of the run has come."""
        if self.stage is Stage.CANDIDATE and (worker in self.owners or not self.owners):
            self._greetings[worker] = silence

    def look(self, silence: float, *, complete: bool) -> Stage:
        """Return the standby's stage after `silence` seconds, with a copy that is `complete` or not."""
        if self.stage is Stage.CONFIRMED:
            return self.stage
        if self.told and complete:
            self.stage = Stage.CONFIRMED
        elif silence < self.lease / 2:
            self.stage, self.since = Stage.FOLLOWING, None
            self._greetings.clear()
        elif self.stage is Stage.CANDIDATE:
            self._count(silence)
        elif complete:
            self.stage = Stage.CANDIDATE
        return self.stage

    def _count(self, silence: float) -> None:
        self._greetings = {worker: at for worker, at in self._greetings.items() if silence - at < FRESH}
        if not self._is_majority():
            self.since = None
            return
        self.since = silence if self.since is None else self.since
        if silence >= max(self.lease, self.lasts_until):
            self.stage = Stage.CONFIRMED

    def _is_majority(self) -> bool:
        here = Counter(self.owners.get(worker, worker) for worker in self._greetings)
        every = Counter(self.owners.values())
        owners = sum(2 * here[owner] > number for owner, number in every.items())
        return 2 * here.total() > len(self.owners) and (not every or 2 * owners > len(every))
