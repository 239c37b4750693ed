"""The facts for a forecast from a run's ledger: nodes' speeds, links and presence, and the tokens counted over time.

Speeds are those that the controller observed: from when a node could begin a task to its result, without the expected
transfers. Claims count for nodes without a result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from operator import itemgetter
from statistics import median
from typing import ClassVar, NamedTuple

import msgspec

from barnraise.account.reducer import Kinds, Reducer
from barnraise.core.types import NodeProfile, kind_of
from barnraise.ledger import (
    Assigned,
    Change,
    Decision,
    Judged,
    LedgerView,
    NodeChanged,
    Noted,
    VersionMade,
    notes,
)
from barnraise.ledger.note import kind_of as kind_of_note
from barnraise.matching.predictor import Times

REMEMBERED = 64
"""Newest tasks of a node that tell its speed."""

WINDOW = 100_000
"""Newest rows of a ledger in which tasks are read; changes of nodes are read from its beginning."""

FEWEST = 3
"""Tasks of a node from which on the first one of a session, which waits for the model, does not count."""

LINKED = 0.3
"""Share of transfers in a task's time from which on the node's claim tells how long it computed, if that is less.

A node that trains on while it sends has results as often as its link allows: the observed times are its link's.
"""

FASTEST_LINK = 1.25e9
"""Bytes a second of a link that delays nothing."""


class TaskTime(NamedTuple):
    """A contribution that was accepted: its tokens, and the observed seconds of computing."""

    tokens: int
    seconds: float


class LinkRates(NamedTuple):
    """A node's link: bytes a second up and down, and the seconds of a message one way."""

    up: float
    down: float
    delay: float


class Transfers(msgspec.Struct):
    """The newest observations of a node's link.

    The controller's figures of its newest tasks, and its last measurement (None: it has told none).
    """

    sent: deque[tuple[float, int]] = msgspec.field(default_factory=lambda: deque(maxlen=REMEMBERED))
    fetched: deque[tuple[float, int]] = msgspec.field(default_factory=lambda: deque(maxlen=REMEMBERED))
    measured: notes.Tuned | None = None

    def rates(self, profile: NodeProfile) -> LinkRates:
        """Return the link by the controller's measurement, else by its expectations, else by the node's claim."""
        waits = [seconds for seconds, _ in self.fetched if seconds > 0.0]
        delay = min(waits) if waits else profile.latency_seconds
        up = _rate(self.sent, delay) or profile.up_bytes_per_second
        down = _rate(self.fetched, 2 * delay) or profile.down_bytes_per_second
        if (seen := self.measured) is not None:
            delay, up, down = seen.round_trip / 2 or delay, seen.up or up, seen.down or down
        up = up or FASTEST_LINK
        return LinkRates(up, down or up, delay)


class NodeHistory(msgspec.Struct):
    """A node: its newest tasks, its claims, its link, and when it was present.

    `spans` are past periods, `since` begins the present one (None: it is away), `banned` says that it does not return.
    `earliest` is its first contribution: its time and tokens. `free` is when it could begin a task last; `first` says
    that its next task is the first of a session, and `odd` that such a task is among `tasks`, while there are few.
    """

    profile: NodeProfile = msgspec.field(default_factory=NodeProfile)
    tasks: deque[TaskTime] = msgspec.field(default_factory=lambda: deque(maxlen=REMEMBERED))
    transfers: Transfers = msgspec.field(default_factory=Transfers)
    spans: list[tuple[float, float]] = msgspec.field(default_factory=list)
    since: float | None = None
    banned: bool = False
    earliest: tuple[float, int] | None = None
    free: float = 0.0
    first: bool = True
    odd: bool = False

    @property
    def came(self) -> float | None:
        """Return when it joined first; None when it never did."""
        return self.spans[0][0] if self.spans else self.since

    @property
    def rate(self) -> float:
        """Return its observed tokens a second, 0 before its first task."""
        seconds = sum(task.seconds for task in self.tasks)
        return sum(task.tokens for task in self.tasks) / seconds if seconds > 0.0 else 0.0

    def working(self, rate: float) -> float | None:
        """Return when it began its first contribution, at `rate` tokens a second; None before it."""
        return self.earliest and self.earliest[0] - self.earliest[1] / rate

    @property
    def link(self) -> LinkRates:
        return self.transfers.rates(self.profile)


class GivenTask(NamedTuple):
    """A task that a node has."""

    node: str
    time: float
    kind: str
    times: Times


class Calibration(Reducer):
    """The facts of a run for a forecast.

    Times are on a clock that stands still while the host pauses the run (`clock`): for `rested` seconds so far, and
    since `resting` now (None: it is not paused). `counted` are the tokens of accepted contributions, and `arrivals`
    their times and tokens, by assignment, since the beginning of the window. `end` is the time of the newest row that
    was taken, on the run's clock. `delta` are the bytes of the newest version, `evaluating` the seconds from versions
    to their losses.
    """

    kinds: ClassVar[Kinds] = (
        NodeChanged, Assigned, Judged, VersionMade, notes.Released, notes.Voided, notes.Tuned, notes.Evaluated,
        notes.Finished, notes.HostPaused, notes.HostContinued,
    )  # fmt: skip

    nodes: dict[str, NodeHistory] = msgspec.field(default_factory=dict)
    arrivals: dict[int, tuple[float, int]] = msgspec.field(default_factory=dict)
    counted: int = 0
    end: float = 0.0
    rested: float = 0.0
    resting: float | None = None
    delta: int = 0
    evaluating: list[float] = msgspec.field(default_factory=list)
    finished: str = ""
    open: dict[int, GivenTask] = msgspec.field(default_factory=dict)
    made: dict[int, float] = msgspec.field(default_factory=dict)  # versions without a loss, and when they were made

    def add(self, row_id: int, decision: Decision, view: LedgerView | None = None) -> None:
        time = self.clock(decision.time)
        self.end = max(self.end, decision.time)
        if isinstance(decision, Assigned):
            times = decision.terms
            expected = Times(times.compute, times.fetch, times.send, times.compute_spread, times.link_spread)
            self.open[decision.assignment] = GivenTask(decision.node, time, decision.kind, expected)
        elif isinstance(decision, Judged):
            self._judged(decision, time)
        elif isinstance(decision, NodeChanged):
            self._changed(decision, time)
        elif isinstance(decision, VersionMade):
            self.delta = decision.delta_bytes
            self.made[decision.version] = time
        elif isinstance(decision, Noted):
            self._noted(decision, time)

    def clock(self, time: float) -> float:
        """Return a time of the run's clock without the host's pauses."""
        return (time if self.resting is None else min(time, self.resting)) - self.rested

    def node(self, name: str) -> NodeHistory:
        """Return the history of a node, a new one where there is none."""
        return self.nodes.setdefault(name, NodeHistory())

    def rates(self) -> dict[str, float]:
        """Return the tokens a second of each node that ever joined.

        A claim counts within the range of the observed rates, by the median share of its rate that a node reaches.
        """
        seen = {name: node.rate for name, node in self.nodes.items() if node.rate > 0.0}
        claims = {name: node.profile.tokens_per_second for name, node in self.nodes.items()}
        shares = [rate / claims[name] for name, rate in seen.items() if claims[name] > 0.0]
        share, usual = (median(shares) if shares else 1.0), (median(seen.values()) if seen else 0.0)
        least, most = (min(seen.values()), max(seen.values())) if seen else (0.0, 0.0)
        found = {}
        for name, node in self.nodes.items():
            if node.came is not None:
                claimed = min(max(claims[name] * share, least), most) if claims[name] > 0.0 else usual
                found[name] = seen.get(name) or claimed
        return found

    def _judged(self, d: Judged, time: float) -> None:
        node, given = self.node(d.node), self.open.pop(d.assignment, None)
        if d.contributes and d.assignment not in self.arrivals:
            self.arrivals[d.assignment] = time, d.tokens
            self.counted += d.tokens
            node.earliest = node.earliest or (time, d.tokens)
        if given is None or given.node != d.node:
            return
        free, node.free = node.free, time - given.times.send
        first, node.first = node.first, False
        node.transfers.sent.append((given.times.send, d.claim.num_bytes))
        node.transfers.fetched.append((given.times.fetch, self.delta))
        if self.resting is None and d.verdict == "accepted" and kind_of(given.kind).contributes and d.tokens > 0:
            seconds = given.times.computed(given.time, free, time)
            if 0.0 < d.claim.seconds < seconds and given.times.fetch + given.times.send > LINKED * seconds:
                seconds = d.claim.seconds  # the rest is for its link
            if seconds > 0.0 and not (first and node.tasks):
                node.odd = node.odd or first
                node.tasks.append(TaskTime(d.tokens, seconds))
                if node.odd and len(node.tasks) > FEWEST:
                    node.tasks.popleft()
                    node.odd = False

    def _changed(self, d: NodeChanged, time: float) -> None:
        if d.change in (Change.ENROLLED, Change.REKEYED):
            return
        node = self.node(d.node)
        if d.change == Change.JOINED:
            if d.profile is not None:
                node.profile = d.profile
            if node.since is None:
                node.since, node.first = time, True
            return
        node.banned = node.banned or d.change == Change.REVOKED
        if node.since is not None:
            node.spans.append((node.since, time))
            node.since = None

    def _noted(self, d: Noted, time: float) -> None:
        note = d.note
        if isinstance(note, notes.Released):
            self.open.pop(note.assignment, None)
        elif isinstance(note, notes.Voided):
            self.counted -= self.arrivals.pop(note.assignment, (0.0, 0))[1]
        elif isinstance(note, notes.Tuned):
            self.node(d.node).transfers.measured = note
        elif isinstance(note, notes.Evaluated):
            if note.version in self.made:
                self.evaluating.append(time - self.made[note.version])
                self.made = {version: time for version, time in self.made.items() if version > note.version}
        elif isinstance(note, notes.Finished):
            self.finished = note.reason
        elif isinstance(note, notes.HostPaused):
            self.resting = d.time if self.resting is None else self.resting
        elif isinstance(note, notes.HostContinued) and self.resting is not None:
            self.rested, self.resting = self.rested + d.time - self.resting, None


def calibrate(view: LedgerView, until: float = float("inf"), window: int = WINDOW) -> Calibration:
    """Return the facts of a ledger's rows up to the time `until`.

    Costs what its newest `window` rows and all changes of nodes cost. Raises StorageError, CorruptionError.
    """
    found = Calibration()
    after = max(0, (view.first_row(until) if until < float("inf") else view.rows + 1) - 1 - window)
    if after:
        kinds = f"id <= ? AND kind IN ('{kind_of_note(notes.HostPaused)}', '{kind_of_note(notes.HostContinued)}')"
        earlier = [*view.find(NodeChanged, "id <= ?", after), *view.find(Noted, kinds, after)]
        for row_id, changed in sorted(earlier, key=itemgetter(0)):
            found.add(row_id, changed)
        found.counted = view.tokens(after)
    for batch in view.cursor(Calibration.kinds, after).new():
        for row_id, decision in batch.rows:
            if decision.time > until:
                return found
            found.add(row_id, decision)
    return found


def of_decisions(decisions: Iterable[Decision]) -> Calibration:
    """Return the facts of decisions that are in no ledger, in their order."""
    found = Calibration()
    for decision in decisions:
        kind = type(decision.note) if isinstance(decision, Noted) else type(decision)
        if kind in Calibration.kinds:
            found.add(0, decision)
    return found


def _rate(observed: Iterable[tuple[float, int]], delay: float) -> float:
    """Return the median bytes a second of transfers that take longer than `delay`; 0 without one."""
    rates = [size / (seconds - delay) for seconds, size in observed if size > 0 and seconds > 1.05 * delay]
    return median(rates) if rates else 0.0
