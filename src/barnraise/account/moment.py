"""A run as it is seen at one moment: its account, and its controller's present where one works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from barnraise.account import nodes
from barnraise.account.account import Account
from barnraise.account.alerts import Alert
from barnraise.account.doubts import states
from barnraise.account.folded import OverTime
from barnraise.account.nodes import NodeRow
from barnraise.account.present import FINISHED, INTERRUPTED, PAUSED, TRAINING, WAITING, Present, StandbyPresent
from barnraise.account.waiting import recorded_waiting


@dataclass(frozen=True)
class RunMoment:
    """One moment of a run, whose token budget is `budget`.

    `present` is None where its controller is another process, or none: then `works` says which. `alerts` are those that
    fire now, `forecast` says when the run ends, where that was estimated.
    """

    account: Account
    over_time: OverTime
    budget: int
    works: bool
    present: Present | None = None
    alerts: Sequence[Alert] = ()
    forecast: Mapping[str, Any] | None = None

    @cached_property
    def clock(self) -> float:
        """Return the time of the run's clock."""
        if self.present is not None:
            return self.present.clock
        return self.account.end + (self.account.run.unchanged_for() if self.works else 0.0)

    @cached_property
    def waits_for(self) -> str:
        """Return why the run does not train, or makes no version; empty when all is well, or no controller works."""
        if self.present is not None:
            return self.present.waits_for
        return recorded_waiting(self.account, self.clock) if self.works else ""

    @cached_property
    def rows(self) -> Sequence[NodeRow]:
        """Return a row for each node."""
        if self.present is not None:
            return self.present.rows
        doubts = states(self.account.dispatch.doubts)
        return nodes.recorded(
            self.account.nodes, running=self.works, finished=bool(self.account.finished), doubts=doubts
        )

    @cached_property
    def state(self) -> str:
        """Return the run's state, one of STATES."""
        if self.present is not None:
            return self.present.state
        if self.account.finished or not self.works:
            return FINISHED if self.account.finished else INTERRUPTED
        if self.account.merging.pauses.told:
            return PAUSED
        return WAITING if self.waits_for else TRAINING

    @cached_property
    def sums(self) -> list[list[float]]:
        """Return the figures of all nodes together: by field of an activity, then by bin."""
        return self.over_time.activity.sums()

    @property
    def standby(self) -> StandbyPresent:
        """Return the standby, as far as it is known."""
        return self.present.standby if self.present is not None else StandbyPresent()
