"""The activities of each node over the time of a run, in bins of equal length that cover all of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import msgspec

from barnraise.account.reducer import Kinds, Reducer
from barnraise.ledger import Assigned, Change, Judged, LedgerView, NodeChanged, Noted, notes

BINS = 120
"""Bins of a run: when its time exceeds them, each becomes twice as long."""

TOKENS, ACCEPTED, REFUSED, TRAIN, EVALUATE, CHECK, UP, DOWN, AWAY = range(9)
FIELDS = 9
"""Figures of a node in a bin: tokens accepted, contributions accepted and refused, then seconds in each activity."""

ACTIVITIES = {"training": TRAIN, "evaluating": EVALUATE, "auditing": CHECK, "uploading": UP, "downloading": DOWN}
"""Activities by name; a present node waits for the rest of the time."""

_COMPUTING = {"evaluate": EVALUATE, "audit": CHECK}
_FLOAT = 4

LATEST = 64
"""Staleness from which on contributions are counted together."""


class OpenTask(NamedTuple):
    """A task that a node has: its kind, when it was assigned, and the expected seconds of its transfers."""

    node: str
    kind: str
    time: float
    fetch: float
    send: float


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
        if isinstance(decision, Assigned):
            terms = decision.terms
            begun = OpenTask(decision.node, decision.kind, decision.time, terms.fetch, terms.send)
            self.open[decision.assignment] = begun
        elif isinstance(decision, Judged):
            self._judged(decision)
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
        found = [0.0] * BINS
        for lane in self.lanes.values():
            for place, value in enumerate(memoryview(lane).cast("f")[field::FIELDS]):
                found[place] += value
        return found

    def _judged(self, d: Judged) -> None:
        begun = self.open.pop(d.assignment, None)
        kind = begun.kind if begun is not None else "train"
        self.sent[kind] = self.sent.get(kind, 0) + d.claim.num_bytes
        if d.verdict == "accepted" and d.brings:
            self._count(d.node, d.time, ACCEPTED, 1.0)
            self._count(d.node, d.time, TOKENS, float(d.tokens))
            late = min(max(0, d.staleness), LATEST)
            self.staleness[late] = self.staleness.get(late, 0) + 1
        elif d.verdict == "refused":
            self._count(d.node, d.time, REFUSED, 1.0)
        if begun is not None:
            self._worked(begun, d)

    def _worked(self, begun: OpenTask, d: Judged) -> None:
        """Add a task's time: its transfer down, its computation as its node tells, its transfer up."""
        room = max(0.0, d.time - begun.time)
        claimed = d.claim.seconds if d.claim.seconds == d.claim.seconds else 0.0
        send = min(begun.send, room)
        end = d.time - send
        start = max(end - max(0.0, claimed), begun.time, min(self.busy.get(d.node, 0.0), end))
        fetch = min(begun.fetch, start - begun.time)
        self.busy[d.node] = end
        self._span(d.node, start, end, _COMPUTING.get(begun.kind, TRAIN))
        self._span(d.node, end, d.time, UP)
        self._span(d.node, start - fetch, start, DOWN)

    def _changed(self, d: NodeChanged) -> None:
        if d.change == Change.JOINED:
            self.came.setdefault(d.node, d.time)
            since = self.gone.pop(d.node, None)
            if since is not None:
                self._span(d.node, since, d.time, AWAY)
            self._lane(d.node, d.time)
        elif d.change.gone and d.node in self.came:
            self.gone.setdefault(d.node, d.time)

    def _carried(self, time: float, note: notes.Traffic) -> None:
        self._reach(time)
        place = min(BINS - 1, int(time / self.width))
        self.up[place] += max(0, note.up - self.traffic[0])
        self.down[place] += max(0, note.down - self.traffic[1])
        self.traffic = note.up, note.down

    def _count(self, node: str, time: float, field: int, by: float) -> None:
        lane = self._lane(node, time)
        lane[int(time / self.width) * FIELDS + field] += by

    def _span(self, node: str, start: float, stop: float, field: int) -> None:
        """Add the seconds from `start` to `stop` to a figure of the bins that they are in."""
        if not 0.0 <= start < stop:
            return
        lane = self._lane(node, stop)
        for place in range(int(start / self.width), min(BINS - 1, int(stop / self.width)) + 1):
            begin = place * self.width
            lane[place * FIELDS + field] += min(stop, begin + self.width) - max(start, begin)

    def _lane(self, node: str, time: float) -> memoryview[float]:
        self._reach(time)
        if node not in self.lanes:
            self.lanes[node] = bytearray(_FLOAT * BINS * FIELDS)
        return memoryview(self.lanes[node]).cast("f")

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
