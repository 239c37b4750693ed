"""When each fault of a plan is due: the same rule for real runs and for simulated ones, without a clock."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from barnraise.config.faults import KINDS, Join, KillController, Planned
from barnraise.config.trial_sections import WorkerSection

NEVER = -math.inf
"""No fault is due by then."""

Entry = tuple[float, bool, int]
"""When a fault is due, whether it ends the controller, and its place in the plan: the order in which faults come."""


class FaultSchedule:
    """The faults of a plan that are still to come, and the places in the plan of those that were played.

    `played` were played by an earlier process of the same command, which died as the plan says.
    """

    def __init__(self, plans: Sequence[Planned], played: Iterable[int] = ()) -> None:
        self.plans = plans
        before = list(played)
        self._continued = bool(before)
        self.played = [place for place in before if place < len(plans)]  # the plan may have been edited in the meantime
        coming = [place for place in range(len(plans)) if place not in self.played]
        self._seconds, self._share, self._decisions = (
            deque(sorted(self._entry(place, unit) for place in coming if getattr(plans[place].when, unit) is not None))
            for unit in ("seconds", "share", "decisions")
        )

    def _entry(self, place: int, unit: str) -> Entry:
        plan = self.plans[place]
        return getattr(plan.when, unit), isinstance(plan.fault, KillController), place

    def share_of_time(self, seconds: float) -> None:
        """Interpret shares as shares of `seconds`, the length of the run, and not of the tokens."""
        moved = [(share * seconds, ends, place) for share, ends, place in self._share]
        self._seconds, self._share = deque(sorted([*self._seconds, *moved])), deque()

    def due(self, *, seconds: float = NEVER, share: float = NEVER, decisions: float = NEVER) -> Iterator[Planned]:
        """Yield the faults that are due, in the order of their times.

        They are due at these seconds into the run, at this share of its token budget, or after this number of
        decisions. A fault counts as played once it is taken from the iterator.
        """
        for queue, reached in ((self._seconds, seconds), (self._share, share), (self._decisions, decisions)):
            while queue and queue[0][0] <= reached:
                place = queue.popleft()[-1]
                self.played.append(place)
                yield self.plans[place]

    def is_due(self, share: float) -> bool:
        """Return whether a fault is due at that share of the token budget."""
        return bool(self._share) and self._share[0][0] <= share

    def skip(self, *, seconds: float = NEVER, share: float = NEVER, decisions: float = NEVER) -> None:
        """Skip faults up to the state that a resumed run has reached: they count as played.

        Where an earlier process of the same command died, only deaths due at `decisions` do, since `played` lists the
        other faults that were played.
        """
        if self._continued:
            seconds = share = NEVER
        for _ in self.due(seconds=seconds, share=share, decisions=decisions):
            pass

    @property
    def times(self) -> list[float]:
        """Return the seconds into the run at which faults are still due."""
        return [seconds for seconds, _, _ in self._seconds]

    @property
    def expects_nodes(self) -> bool:
        """Return whether a node joins after some seconds: the clock advances without workers, the tokens do not."""
        return any(isinstance(self.plans[place].fault, Join) for *_, place in self._seconds)

    @property
    def gone(self) -> set[str]:
        """Return the nodes that faults have ended."""
        played = [self.plans[place] for place in self.played]
        return set(chain.from_iterable(plan.nodes for plan in played if KINDS[plan.name].ends))

    @property
    def joined(self) -> list[WorkerSection]:
        """Return the workers that faults have added."""
        faults = (self.plans[place].fault for place in self.played)
        return [fault.join for fault in faults if isinstance(fault, Join)]
