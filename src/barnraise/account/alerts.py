"""The conditions of a run that its host is alerted to, as a state machine over what is seen of it again and again."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from barnraise.core.units import bytes_text, count_text, duration_text

WINDOW = 900.0
"""Seconds over which rates are taken."""

LEAST_RESULTS, REFUSED_SHARE = 10, 0.3
"""Results in the window from which on their refused share counts, and the share that is too much."""

MOST_LOST = 10
"""Losses of workers in the window that are usual."""

LEAST_DISK = 2e9
"""Bytes of free space below which a disk is nearly full."""

LATEST_STANDBY = 60.0
"""Seconds that a standby may be behind."""

Severity = Literal["page", "warn", "info"]


class Vitals(NamedTuple):
    """The state of a run at one moment, as far as alerts need it; counts are over the whole run.

    `working` says that it should make progress: it is neither over nor paused by its host. `over` is why it has ended,
    if it has. `standby` says whether one has followed and none does now, and how far it is behind.
    """

    time: float  # seconds of a clock that never stands still
    working: bool = True
    over: str = ""
    waits_for: str = ""
    tokens: int = 0
    accepted: int = 0
    refused: int = 0
    quarantined: int = 0
    lost: int = 0
    disk_free: float = float("inf")
    checkpoint_failures: int = 0
    standby: tuple[bool, float, int] = (False, 0.0, 0)  # gone, seconds behind, contributions unprotected


class Alert(NamedTuple):
    """An alert that fires from `since` on, or was resolved at `until`."""

    name: str
    severity: Severity
    summary: str
    since: float
    until: float | None = None


class Condition(NamedTuple):
    """One condition: `told` returns what is wrong, "" for nothing; it fires once that has held for `hold` seconds.

    It gets the oldest vitals of the last WINDOW seconds and the newest; where `at_work`, the oldest since the run
    works.
    """

    severity: Severity
    hold: float
    told: Callable[[Vitals, Vitals], str]
    at_work: bool = False


def _no_progress(old: Vitals, new: Vitals) -> str:
    if new.time - old.time < WINDOW or new.tokens > old.tokens:
        return ""
    waits = f": {new.waits_for}" if new.waits_for else ""
    return f"no contribution was accepted for {duration_text(new.time - old.time)}{waits}"


def _refusals(old: Vitals, new: Vitals) -> str:
    refused, results = new.refused - old.refused, new.refused + new.accepted - old.refused - old.accepted
    if results < LEAST_RESULTS or refused <= REFUSED_SHARE * results:
        return ""
    return f"{refused / results:.0%} of {count_text(results, 'contribution')} were refused in the last 15 minutes"


def _standby_late(old: Vitals, new: Vitals) -> str:
    behind = new.standby[1]
    return f"the standby is {duration_text(behind)} behind" if behind > LATEST_STANDBY else ""


RULES: Mapping[str, Condition] = {
    "no_progress": Condition("page", 0.0, _no_progress, at_work=True),
    "refusals": Condition("warn", 60.0, _refusals),
    "quarantine": Condition(
        "warn", 0.0, lambda old, new: f"{count_text(new.quarantined, 'worker')} quarantined" if new.quarantined else ""
    ),
    "workers_lost": Condition(
        "warn",
        0.0,
        lambda old, new: (
            f"{count_text(new.lost - old.lost, 'worker')} lost in the last 15 minutes: silent, killed or crashed"
            if new.lost - old.lost > MOST_LOST
            else ""
        ),
    ),
    "disk": Condition(
        "page",
        60.0,
        lambda old, new: (
            f"only {bytes_text(new.disk_free)} are free on the disk of the run directory"
            if new.disk_free < LEAST_DISK
            else ""
        ),
    ),
    "checkpoint": Condition(
        "warn",
        0.0,
        lambda old, new: (
            "a checkpoint could not be written" if new.checkpoint_failures > old.checkpoint_failures else ""
        ),
    ),
    "standby_late": Condition("warn", 120.0, _standby_late),
    "standby_lost": Condition("warn", 60.0, lambda old, new: "the standby is gone" if new.standby[0] else ""),
    "unprotected": Condition(
        "warn",
        0.0,
        lambda old, new: (
            f"{count_text(new.standby[2], 'contribution')} acknowledged without a standby" if new.standby[2] else ""
        ),
    ),
    "over": Condition("info", 0.0, lambda old, new: f"the run is over: {new.over}" if new.over else ""),
}
"""All conditions by name."""


class Watch:
    """Tells when a condition of RULES begins to hold, and when it ceases."""

    def __init__(self) -> None:
        self._seen: deque[Vitals] = deque()
        self._since: dict[str, float] = {}
        self._rested = -math.inf  # when the run did not work last
        self.firing: dict[str, Alert] = {}

    def look(self, vitals: Vitals) -> list[Alert]:
        """Take the next vitals; return the alerts that begin or end with them."""
        seen = self._seen
        seen.append(vitals)
        while len(seen) > 2 and seen[1].time <= vitals.time - WINDOW:
            seen.popleft()
        if not vitals.working:
            self._rested = vitals.time
        at_work = next((one for one in seen if one.time > self._rested), vitals)
        changed = []
        for name, rule in RULES.items():
            told = rule.told(at_work if rule.at_work else seen[0], vitals)
            if not told:
                self._since.pop(name, None)
                if (alert := self.firing.pop(name, None)) is not None:
                    changed.append(alert._replace(until=vitals.time))
            elif vitals.time - self._since.setdefault(name, vitals.time) >= rule.hold and name not in self.firing:
                self.firing[name] = Alert(name, rule.severity, told, vitals.time)
                changed.append(self.firing[name])
        return changed
