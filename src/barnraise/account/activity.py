"""The activities of each node over the time of a run, in bins of equal length that cover all of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import msgspec

from barnraise.account.reducer import Kinds, Reducer
from barnraise.ledger import Assigned, Change, Judged, LedgerView, NodeChanged, Noted, notes

BINS = 120
"""Bins of a run: when its time exceeds them, each becomes twice as long."""

TOKENS, ACCEPTED, REFUSED, LOSS, TRAIN, EVALUATE, CHECK, UP, DOWN, AWAY = range(10)
FIELDS = 10
"""Figures of a node in a bin: tokens accepted, contributions accepted and refused, the loss that it tells times those
tokens (nats), then seconds in each activity."""

ACTIVITIES = {"training": TRAIN, "evaluating": EVALUATE, "auditing": CHECK, "uploading": UP, "downloading": DOWN}
"""Activities by name; a present node waits for the rest of the time."""

_COMPUTING = {"evaluate": EVALUATE, "audit": CHECK}
_FLOAT = 4

LARGEST_LOSS = 1000.0
"""Nats a token: a loss of that size or more is not added up."""

LATEST = 64
"""Staleness from which on contributions are counted together."""


class OpenTask(NamedTuple):
    """A task that a node has: its kind, when it was assigned, and the expected seconds of its transfers."""

    kind: str
    time: float
    fetch: float
    send: float


class Phases(NamedTuple):
    """When a node began to download a task's input, to compute, and to upload its result, on the run's clock."""

    download: float
    begun: float
    ended: float


def phases(task: OpenTask, judged: Judged, busy: float) -> Phases:
    """Return the phases of a task with a verdict; its node computed another one until `busy`.

    The node computed as long as it says, but no longer than the expected time of its transfer up leaves. It downloaded
    for the expected time before that.
    """
    claimed = judged.claim.seconds if judged.claim.seconds >= 0.0 else 0.0  # it may be no number
    ended = max(task.time, judged.time - task.send)
    begun = max(ended - claimed, task.time, min(busy, ended))
    return Phases(max(task.time, begun - task.fetch), begun, ended)


class Activity(Reducer):
    """Adds up what nodes did, bin by bin; `lanes` has BINS x FIELDS float32 of each node.

    A task counts from its assignment to its verdict: as long as its node says that it computed, but no longer than that
    leaves; before that the expected time of its transfer down, after that the one up. `gone` are the nodes that are
    away, and since when. `sent` has bytes of results by kind of task, `staleness` numbers of contributions by their
    staleness, `up` and `down` bytes of all nodes by bin, up to `traffic`.
    """

    kinds: ClassVar[Kinds] = (NodeChanged, Assigned, Judged, notes.Released, notes.Traffic)

    width: float = 1.0
    lanes: dict[str, bytearray] = msgspec.field(default_factory=dict)
    came: dict[str, float] = msgspec.field(default_factory=dict)
    gone: dict[str, float] = msgspec.field(default_factory=dict)
    open: dict[int, OpenTask] = msgspec.field(default_factory=dict)
    busy: dict[str, float] = msgspec.field(default_factory=dict)  # until when a node computed last
    sent: dict[str, int] = msgspec.field(default_factory=dict)
    staleness: dict[int, int] = msgspec.field(default_factory=dict)
    up: list[float] = msgspec.field(default_factory=lambda: [0.0] * BINS)
    down: list[float] = msgspec.field(default_factory=lambda: [0.0] * BINS)
    traffic: tuple[int, int] = (0, 0)

    def add(self, row_id: int, decision: object, view: LedgerView) -> None:
        if isinstance(decision, Judged):
            self._judged(decision)
        elif isinstance(decision, Assigned):
            terms = decision.terms
            self.open[decision.assignment] = OpenTask(decision.kind, decision.time, terms.fetch, terms.send)
        elif isinstance(decision, NodeChanged):
            self._changed(decision)
        elif isinstance(decision, Noted) and isinstance(decision.note, notes.Released):
            self.open.pop(decision.note.assignment, None)
        elif isinstance(decision, Noted) and isinstance(decision.note, notes.Traffic):
            self._carried(decision.time, decision.note)

    def spans(self, node: str, end: float) -> Iterator[tuple[int, list[float]]]:
        """Yield the bins of a node from when it came until `end`: seconds in each of ACTIVITIES, waiting, and away."""
        since, gone = self.came.get(node), self.gone.get(node)
        if since is None or node not in self.lanes:
            return
        figures = memoryview(self.lanes[node]).cast("f")
        for place in range(int(since / self.width), min(BINS, int(end / self.width) + 1)):
            start, stop = max(since, place * self.width), min(end, (place + 1) * self.width)
            row = figures[place * FIELDS : (place + 1) * FIELDS]
            away = row[AWAY] + (max(0.0, stop - max(start, gone)) if gone is not None else 0.0)
            told = [row[field] for field in ACTIVITIES.values()]
            yield place, [*told, max(0.0, stop - start - away - sum(told)), away]

    def totals(self, field: int) -> list[float]:
        """Return a figure of all nodes together, by bin."""
        return self.sums()[field]

    def sums(self) -> list[list[float]]:
        """Return all figures of all nodes together: by field, then by bin."""
        import numpy as np

        figures = np.frombuffer(b"".join(self.lanes.values()), np.float32).reshape(-1, BINS, FIELDS)
        found: list[list[float]] = figures.sum(0, dtype=np.float64).T.tolist()
        return found

    def _judged(self, d: Judged) -> None:
        task = self.open.pop(d.assignment, None)
        kind = task.kind if task is not None else "train"
        self.sent[kind] = self.sent.get(kind, 0) + d.claim.num_bytes
        lane = self._lane(d.node, d.time)
        place = int(d.time / self.width) * FIELDS
        if d.contributes:
            lane[place + ACCEPTED] += 1.0
            lane[place + TOKENS] += d.tokens
            if -LARGEST_LOSS < d.claim.loss < LARGEST_LOSS:  # it may be no number
                lane[place + LOSS] += d.claim.loss * d.tokens
            late = min(max(0, d.staleness), LATEST)
            self.staleness[late] = self.staleness.get(late, 0) + 1
        elif d.verdict == "refused":
            lane[place + REFUSED] += 1.0
        if task is not None:
            self._worked(lane, task, d)

    def _worked(self, lane: memoryview[float], task: OpenTask, d: Judged) -> None:
        """Add a task's time: its transfer down, its computation as its node tells, its transfer up."""
        download, begun, ended = phases(task, d, self.busy.get(d.node, 0.0))
        self.busy[d.node] = ended
        self._span(lane, begun, ended, _COMPUTING.get(task.kind, TRAIN))
        self._span(lane, ended, d.time, UP)
        self._span(lane, download, begun, DOWN)

    def _changed(self, d: NodeChanged) -> None:
        if d.change == Change.JOINED:
            self.came.setdefault(d.node, d.time)
            lane = self._lane(d.node, d.time)
            since = self.gone.pop(d.node, None)
            if since is not None:
                self._span(lane, since, d.time, AWAY)
        elif d.change.gone and d.node in self.came:
            self.gone.setdefault(d.node, d.time)

    def _carried(self, time: float, note: notes.Traffic) -> None:
        self._reach(time)
        place = min(BINS - 1, int(time / self.width))
        self.up[place] += max(0, note.up - self.traffic[0])
        self.down[place] += max(0, note.down - self.traffic[1])
        self.traffic = note.up, note.down

    def _span(self, lane: memoryview[float], start: float, stop: float, field: int) -> None:
        """Add the seconds from `start` to `stop` to a figure of the bins that they are in."""
        if not 0.0 <= start < stop:
            return
        width = self.width
        first, last = int(start / width), min(BINS - 1, int(stop / width))
        if first == last:
            lane[first * FIELDS + field] += stop - start
            return
        for place in range(first, last + 1):
            lane[place * FIELDS + field] += min(stop, (place + 1) * width) - max(start, place * width)

    def _lane(self, node: str, time: float) -> memoryview[float]:
        """Return a node's figures, in bins that reach `time`."""
        if time >= self.width * BINS:
            self._reach(time)
        lane = self.lanes.get(node)
        if lane is None:
            lane = self.lanes[node] = bytearray(_FLOAT * BINS * FIELDS)
        return memoryview(lane).cast("f")

    def _reach(self, time: float) -> None:
        """Make the bins longer until they cover `time`."""
        while time >= self.width * BINS:
            self.width *= 2.0
            self.up, self.down = _halved(self.up), _halved(self.down)
            for lane in self.lanes.values():
                _halve(lane)


def _halved(values: list[float]) -> list[float]:
    return [values[place] + values[place + 1] for place in range(0, BINS, 2)] + [0.0] * (BINS // 2)


def _halve(lane: bytearray) -> None:
    import numpy as np

    figures = np.frombuffer(lane, np.float32).reshape(BINS // 2, 2, FIELDS).sum(1)
    lane[: figures.nbytes] = figures.tobytes()
    lane[figures.nbytes :] = bytes(len(lane) - figures.nbytes)
