"""The amount of each node's work: local steps, learning rate, and density of payloads, by its speed and its link."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from barnraise.controller.fleet.membership import Membership
from barnraise.controller.fleet.records import UNKNOWN_LINK, NodeRecords
from barnraise.controller.fleet.speeds import Speeds
from barnraise.controller.state.part import Context, Part
from barnraise.controller.state.state import NodeState
from barnraise.ledger.decisions import Noted
from barnraise.ledger.notes import Tuned
from barnraise.training import pace, tuning
from barnraise.training.catalog import INNER
from barnraise.trust.owners import median

CLAIMED = 4.0
"""Factor over the median node's exchange up to which one counts for the length of all nodes' rounds: nodes claim the
speed of their links themselves."""

SLOWER = 4.0
"""Factor over the median node's round up to which a round may be extended: slower nodes have no effect."""

LEAST_PART = 0.25
"""Share of its task that a node gets at least whose owner wants it back before: it submits the finished steps."""


class Pacing(Part):
    """Keeps the length of a round at the fleet's pace."""

    def __init__(self, context: Context, records: NodeRecords, speeds: Speeds, membership: Membership) -> None:
        super().__init__(context)
        self.records, self.speeds, self.membership = records, speeds, membership
        self.tasks, self.payloads, self.worker = (
            context.settings.tasks, context.settings.payloads, context.settings.worker
        )  # fmt: skip
        self._choices = tuning.TuningChoices(
            self.payloads.rungs, self.payloads.divisors, self.tasks.local_steps, self.tasks.max_local_steps
        )
        self._round_seconds, self._found_at = 0.0, 0  # and the count of the speeds behind it

    def local_steps(self, node: NodeState) -> int:
        """Return the steps of the node's next task: by its speed, and more where it is ahead of the others."""
        steps = self._own_steps(node)
        if not self.worker.overlap or node.speed.rate <= 0.0:
            return steps
        most = max(steps, self.tasks.max_local_steps)
        return min(most, pace.aligned_steps(steps, self._batch_tokens / node.speed.rate, node.speed.waited))

    def usual_steps(self) -> int:
        """Return the steps of a task for a node of median speed."""
        if self.tasks.pace == "fixed" or self.speeds.median <= 0.0:
            return self.tasks.local_steps
        speed = pace.Speed(self._batch_tokens / self.speeds.median, 0.0)
        return max(self.tasks.local_steps, pace.local_steps(speed, self._round(), self.tasks.max_local_steps))

    def in_time(self, node: NodeState, steps: int) -> int:
        """Return those of `steps` steps that the node can take before its owner wants it back."""
        left = self.membership.left(node.id)
        if left == math.inf or node.speed.rate <= 0.0:
            return steps
        seconds = left - len(node.open) * node.speed.turnaround
        most = int(max(0.0, seconds) * node.speed.rate / self._batch_tokens)
        return max(math.ceil(LEAST_PART * steps), min(steps, most))

    def rate_factor(self, node: NodeState, steps: int, num_rows: float) -> float:
        """Return the share of the learning rate at which the node takes `steps` steps with `num_rows` rows.

        It depends on how much staler the node's work is than the median node's, so that the run file's rate is that of
        a usual node.
        """
        tasks = self.tasks
        if tasks.pace == "fixed":
            return 1.0
        length = self._round()
        staleness = max(0.0, node.updates.staleness - self.speeds.usual_staleness)
        batch_ratio = num_rows / (steps * tasks.batch_size)
        if tasks.pace == "matched" and self.speeds.estimate(node) > 0.0:
            steps += pace.hindered_steps(self._speed(node), length, tasks.max_local_steps)
        adam = INNER.entry(self.worker.inner.optimizer).declares.adaptive
        return pace.rate_factor(steps, tasks.local_steps, staleness, batch_ratio, adam=adam)

    def tuned(self, node: NodeState) -> Iterator[Noted]:
        """Adapt the node's payloads and steps to its last measurements of its link; a change is on the ledger."""
        link, rate = self.records[node.id].link, self.speeds.estimate(node)
        tasks, payloads = self.tasks, self.payloads
        if not tasks.tune or link is None or rate <= 0.0:
            return
        round_trip = min(link.round_trip, node.speed.turnaround) if node.speed.turnaround else link.round_trip
        measured = tuning.MeasuredNode(self._batch_tokens / rate, round_trip, link.up, link.down)
        least = max(node.tuning.least_steps, tasks.local_steps)
        now_at = tuning.TunedTask(node.tuning.rung, least, node.tuning.partition)
        versions = max(1.0, self.state.num_live / max(1, self.state.buffer.size))  # made while it trains a task
        down = min(round(versions * payloads.delta), payloads.snapshot)
        found = tuning.tune(measured, now_at, self._choices, down)
        if found != now_at:
            sent = self._choices.rungs[found.rung] // self._choices.divisors[found.partition]
            note = Tuned(found.rung, found.steps, found.partition, sent, *measured)
            yield Noted(self.now, note, node.id)

    def share(self, node: NodeState) -> float:
        """Return the weight of a node's contribution in a version."""
        if not self.context.settings.versions.participation:
            return 1.0
        return self.speeds.participation(node, bool(self.worker.uplink.normalize_steps))

    @property
    def _batch_tokens(self) -> int:
        return self.tasks.batch_size * self.tasks.context

    def _own_steps(self, node: NodeState) -> int:
        tasks = self.tasks
        if tasks.pace == "fixed" or self.speeds.estimate(node) <= 0.0:
            return tasks.local_steps
        speed, length = self._speed(node), self._round()
        if tasks.pace == "literal":
            computing = length - speed.exchange
            return pace.literal_steps(node.speed.step_seconds, tasks.local_steps, tasks.max_local_steps, computing)
        return pace.local_steps(speed, length, tasks.max_local_steps)

    def _round(self) -> float:
        """Return the seconds of a round at the fleet's pace, computed again with the rates."""
        self.speeds.refresh()
        if self.speeds.count != self._found_at:
            seen = [other for other in self.speeds.counted if other.speed.rate > 0.0]
            fleet = [self._speed(other) for other in seen]
            most = CLAIMED * median((other.owner, speed.exchange) for other, speed in zip(seen, fleet, strict=True))
            fleet = [replace(speed, exchange=min(speed.exchange, most)) for speed in fleet]
            needs = [pace.round_seconds([speed], self.tasks.local_steps) for speed in fleet]
            usual = median((other.owner, need) for other, need in zip(seen, needs, strict=True))
            self._round_seconds = min(pace.round_seconds(fleet, self.tasks.local_steps), SLOWER * usual)
            self._found_at = self.speeds.count
        return self._round_seconds

    def _speed(self, node: NodeState) -> pace.Speed:
        """Return the node's pace; its claims about its link count as far as observations confirm them."""
        link = self.records[node.id].link or UNKNOWN_LINK
        sent = self._choices.rungs[node.tuning.rung] / self._choices.divisors[node.tuning.partition]
        exchange = min(link.round_trip + (sent / link.up if link.up else 0.0), node.speed.turnaround)
        return pace.Speed(self._batch_tokens / self.speeds.known(node), exchange)
