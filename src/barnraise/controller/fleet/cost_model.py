"""The expected times of a task on a node: p_ij and d_ij of `matching.predictor`, from facts about node and link.

Expectations go onto the ledger with the assignment, so that their accuracy can be computed from it, and the statistics
are the same in a replay. Seconds are observed; of the link the upload rate is, as far as payloads travel for
themselves, and the rest is the node's claim.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from barnraise.controller.fleet.data_locality import DataLocality
from barnraise.controller.fleet.records import UNKNOWN_LINK, NodeRecords
from barnraise.controller.fleet.speeds import Speeds
from barnraise.controller.fleet.uploads import Uploads
from barnraise.controller.state.events import Arrived, Event
from barnraise.controller.state.part import Context, Part, Steps
from barnraise.controller.state.state import NodeState
from barnraise.core import ranges
from barnraise.core.types import AnyTask, kind_of
from barnraise.ledger.decisions import Assigned
from barnraise.matching.predictor import Learned, Times, sort_of, transfer
from barnraise.wire.messages import INLINE_BYTES

DEFAULT_BANDWIDTH = 1.25e6
"""Bytes a second of an unknown link."""

SMOOTHING = 0.5
"""Weight of the newest upload."""

QUICK = 2.0
"""An upload that took fewer round trips does not measure the link's rate."""


class Link(NamedTuple):
    """Bytes a second both ways (0: not known), and seconds one way."""

    up: float
    down: float
    latency: float


class CostModel(Part):
    """Predicts times, and observes how fast each node's uploads come."""

    def __init__(
        self, context: Context, records: NodeRecords, uploads: Uploads, speeds: Speeds, data_locality: DataLocality
    ) -> None:
        super().__init__(context)
        self.records, self.uploads, self.speeds, self.data_locality = records, uploads, speeds, data_locality
        self.tasks, self.payloads = context.settings.tasks, context.settings.payloads

    def rate(self, node: NodeState) -> float:
        """Return the tokens of training a second while it computes; 0 before the first."""
        return node.speed.learned.rate or self.speeds.estimate(node)

    def link(self, node: NodeState) -> Link:
        """Return the node's link, as observed or else as claimed."""
        record, profile = self.records[node.id], node.session.profile
        link = record.link or UNKNOWN_LINK
        return Link(
            record.uplink or link.up or profile.up_bytes_per_second,
            link.down or profile.down_bytes_per_second,
            link.round_trip / 2 or profile.latency_seconds,
        )

    def expect(self, decision: Assigned, task: AnyTask) -> Assigned:
        """Return the assignment with its expected times."""
        times = self.times(self.state.nodes[decision.node], decision, task)
        terms = msgspec.structs.replace(
            decision.terms,
            compute=times.compute,
            fetch=times.fetch,
            send=times.send,
            compute_spread=times.compute_spread,
            link_spread=times.link_spread,
        )
        return msgspec.structs.replace(decision, terms=terms)

    def times(self, node: NodeState, decision: Assigned, task: AnyTask) -> Times:
        """Return the expected times of a task on a node; zeros while its speed is not known."""
        sort, learned = sort_of(decision.kind, decision.tokens, decision.local_steps), node.speed.learned
        compute = learned.compute(sort, task.effort) or self._claimed(node, learned, task.effort)
        if not compute:
            return Times()
        link, held, tasks = self.link(node), self.data_locality.of(node.id), self.tasks
        lacking = {rows.shard for rows in decision.rows if rows.shard < tasks.rows.num_shards} - held
        fetched = sum([update.blob.num_bytes for update in task.updates])
        if lacking:
            fetched += sum(map(tasks.shard_bytes, lacking))
        return Times(
            compute,
            learned.fetch(transfer(fetched, link.down or DEFAULT_BANDWIDTH, link.latency)) + link.latency,
            transfer(self._sent(decision), link.up or DEFAULT_BANDWIDTH, 0.0) + link.latency,
            learned.compute_spread(sort),
            learned.link_spread,
        )

    def _claimed(self, node: NodeState, learned: Learned, effort: float) -> float:
        rate = 0.0 if learned.newest else self.speeds.estimate(node)
        return effort / rate if rate > 0.0 else 0.0

    def _sent(self, decision: Assigned) -> float:
        """Return the bytes of its payload."""
        if not kind_of(decision.kind).contributes:
            return 0.0
        covered = ranges.size(decision.terms.parameters)
        return self.payloads.rungs[decision.terms.rung] * covered / self.payloads.exchanged

    def _arrived(self, event: Arrived) -> Steps:
        """Measure the node's upload rate from an arrived payload that travelled for itself."""
        upload = self.uploads.uploads.get(event.assignment)
        if upload is not None and upload.node == event.node and event.num_bytes >= upload.num_bytes > INLINE_BYTES:
            record = self.records[event.node]
            trip = (record.link or UNKNOWN_LINK).round_trip
            seconds = self.now - upload.since
            if seconds > QUICK * trip:
                seen = upload.num_bytes / (seconds - min(trip, seconds / 2))
                known = record.uplink or seen
                record.uplink = known + SMOOTHING * (seen - known)
        yield from ()

    def events(self) -> dict[type[Event], Callable[[Any], Steps]]:
        return {Arrived: self._arrived}
