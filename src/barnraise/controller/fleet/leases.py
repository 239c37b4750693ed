"""The leases of the nodes that take part: how long each may be silent, and which ones are silent for too long.

Any frame of a live node renews its lease. How long it is follows from the node's own frames (`failure_detector`). A
node that is silent for longer than they make likely is a suspect, which gets no more work until it is heard again. At
the end of its lease it is gone, which `membership` decides.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator

from barnraise.controller.fleet.failure_detector import UNKNOWN_ROUND_TRIP
from barnraise.controller.fleet.records import NodeRecord, NodeRecords
from barnraise.controller.state.part import Context, Part, TaskHold
from barnraise.controller.state.state import NodeState

LOOKS = 16
"""How often leases are looked at while one lasts: many nodes' at a time, as each look at the fleet has its price."""

COMMON = 3
"""Nodes that are silent at once only by the controller's own fault: for two heartbeats it, or its line, received
nothing. That does not count for their links, unless it lasted until leases ended: then as much is to be expected again.
"""


class Leases(Part):
    """Watches the silence of the nodes that take part."""

    def __init__(self, context: Context, records: NodeRecords) -> None:
        super().__init__(context)
        self.records, self.leases = records, context.settings.leases
        self.lease = self.lease_told = 0.0  # seconds of silence allowed, and when the fleet was last told
        self.heartbeat = 0.0  # seconds between frames that the fleet was told of
        self._heard_at = math.inf  # time of the last frame of any node
        self._silent: dict[str, None] = {}  # nodes whose lease has ended, which are not back
        self._excused = 0  # nodes of whose silence some is excused
        self._looks: list[tuple[float, str]] = []  # a heap: when to look next at a node's lease

    def greeted(self, record: NodeRecord, restarted: bool) -> None:
        """A node has greeted this process and takes part. `restarted`: in a new session."""
        self.listen()
        self._take_excuse(record)
        frames, now = record.frames, self.now
        silent = frames.silent
        frames.silent = math.nan
        self._silent.pop(record.id, None)
        if record.id not in self.records.present:
            self._look_at(record, now + self.intervals()[1])
            if not math.isnan(silent) and not restarted:  # it was there all the time: its frames were late
                frames.detector.learn(now, now - silent - self.heartbeat)

    def heard(self, record: NodeRecord | None) -> bool:
        """Renew a node's lease by a frame, and record its lateness; None: the node takes no part.

        Returns whether it was passed over as a suspect: then it may get work now.
        """
        now, heartbeat = self.context.now, self.heartbeat
        if now - self._heard_at > 2.0 * heartbeat:
            self.listen()
        else:
            self._heard_at = now
        if record is None:
            return False
        present, frames = self.records.present, record.frames
        seen, frames.seen = frames.seen, now
        del present[record.id]
        present[record.id] = record
        if self._excused:
            seen += self._take_excuse(record)
        frames.detector.heard(now, now - seen, heartbeat)
        session = record.session
        if not session.passed_over:
            return False
        session.passed_over = False
        return True

    def listen(self) -> None:
        """Note a frame after a time without any, which does not count for any node's link."""
        since, self._heard_at = self._heard_at, self.context.now
        if self.context.now - since > 2.0 * self.heartbeat:
            self._silent = {node: None for node in self._silent if self.records.find(node) is not None}
            silent = map(self.records.__getitem__, self._silent)
            quiet = [one for one in silent if one.frames.silent > since - self.lease]
            quiet = [*self.records.present.values(), *quiet]
            if len(quiet) >= COMMON:
                for record in quiet:
                    self._excused += not record.frames.excused
                    record.frames.excused += self.context.now - since

    def _take_excuse(self, record: NodeRecord) -> float:
        excused, record.frames.excused = record.frames.excused, 0.0
        self._excused -= excused > 0.0
        return excused

    def excuse(self, seconds: float) -> None:
        for record in self.records.present.values():
            record.frames.seen += seconds

    # Suspects

    def suspects(self, now: float) -> list[str]:
        """Return the nodes that are silent for longer than their frames so far make likely.

        `now` may be later than the current event.
        """
        return [record.id for record in self.records.present.values() if self._silent_too_long(record, now)]

    def hold(self, node: NodeState, now: float) -> TaskHold | None:
        record = self.records.present[node.id]
        if not self._silent_too_long(record, now):
            return None
        return TaskHold(math.inf, f"silent for {now - record.frames.seen:.1f} s, longer than usual", until_heard=True)

    def _silent_too_long(self, record: NodeRecord, now: float) -> bool:
        silence = now - record.frames.seen
        return silence > self.heartbeat and silence > record.frames.detector.suspicion(
            self.heartbeat, _round_trip(record)
        )

    # Leases

    def intervals(self, node: str | None = None) -> tuple[float, float]:
        """Return heartbeat and lease of the fleet, or the lease of a node, which waits as long for the controller.

        When the fleet shrinks, the longer lease holds for its own length: nodes that were told of it must not seem
        silent.
        """
        now, (heartbeat, lease) = self.context.now, self.leases.intervals(self.state.num_live)
        if lease >= self.lease or now >= self.lease_told + self.lease:
            self.lease, self.lease_told, self.heartbeat = lease, now, heartbeat
        if node is None:
            return heartbeat, lease
        record = self.records[node]
        if record.link is None:  # an unknown link is no reason for it to wait
            return heartbeat, lease
        return heartbeat, self._lease(record, lease)

    def _lease(self, record: NodeRecord, lease: float) -> float:
        """Return the fleet's lease, and more for a slow or uneven link, within the run file's bounds.

        The node's claims about its link change its own lease alone.
        """
        round_trip = UNKNOWN_ROUND_TRIP if record.link is None else record.link.round_trip
        return record.frames.detector.patience(self.context.now, self.heartbeat, lease, round_trip)

    def _look_at(self, record: NodeRecord, time: float) -> None:
        """Look then, or a little later, whether the node's lease has ended, if that is not planned already."""
        if math.isnan(record.frames.next_look):
            step = self.lease / LOOKS
            record.frames.next_look = max(time, math.ceil(time / step) * step)
            heapq.heappush(self._looks, (record.frames.next_look, record.id))

    @property
    def next_look(self) -> float:
        """When to look next for leases that have ended; infinite when there are none."""
        return self._looks[0][0] if self._looks else math.inf

    def ended(self) -> Iterator[tuple[str, float]]:
        """The nodes whose lease has ended by now, each with the seconds of its silence."""
        self.intervals()
        now, looks = self.context.now, self._looks
        while looks and looks[0][0] <= now:
            time, node = heapq.heappop(looks)
            record = self.records.find(node)
            if record is None or record.frames.next_look != time:
                continue
            record.frames.next_look = math.nan
            if node not in self.records.present:
                continue
            seen = record.frames.seen
            ends = seen + self._lease(record, self.lease)
            if ends > now:
                self._look_at(record, ends)
            else:
                record.frames.silent = seen
                self._silent[node] = None
                yield node, now - seen


def _round_trip(record: NodeRecord) -> float:
    return UNKNOWN_ROUND_TRIP if record.link is None else record.link.round_trip
