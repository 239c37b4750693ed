"""The loss gate: before a version is made, the controller finds the nodes without whose updates it is better.

An aggregation rule sees updates alone. An attacker that keeps near the honest ones, and climbs the loss there, passes
it. The controller has the model and the training rows: it measures the effect of the aggregate on the loss on rows that
it draws by its key, and leaves out nodes without which the aggregate does better (`tensors.weigher`). They are always
fewer than half of the version's nodes, and never so many that the aggregation rule has too few. If the version would do
harm without them, too, as one of few nodes may that is mostly of liars, the model does not move: all are left out.

That is no verdict on a node. Its contributions stay accepted and credited, nothing about it is remembered, and its next
update is checked independently. The excluded nodes are noted on the ledger before the version is made, so a replay
makes the same version without measuring anything.
"""

from __future__ import annotations

import hashlib
import hmac

from barnraise.controller.state.effects import Gate, Gated
from barnraise.controller.state.part import Context, Part, Steps
from barnraise.controller.state.state import Closing
from barnraise.ledger import notes
from barnraise.ledger.decisions import Noted


class LossGate(Part):
    """Keeps which version was measured last."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.versions = context.settings.versions
        self.settings = self.versions.gate
        self._measured = 0

    def ask(self, closing: Closing) -> Gate | None:
        """Return the measurement before the version is made; None where there is none."""
        decided = self._measured == closing.version or any(slot.excluded for slot in closing.slots)
        nodes = len({slot.node for slot in closing.slots if slot.contributions})
        most = min((nodes - 1) // 2, nodes - self.versions.minimum_nodes)
        if not self.settings.rows or decided or not nodes:
            return None
        drawn = hmac.digest(self.settings.key, f"gate {closing.version}".encode(), hashlib.sha256)
        return Gate(
            self.context.epoch,
            closing.version,
            tuple(closing.slots),
            closing.rate * self.versions.outer_rate,
            most=max(0, most),
            rows=self.settings.rows,
            seed=int.from_bytes(drawn[:6]),
        )

    def answer(self, event: Gated) -> Steps:
        """Note the nodes that are left out of the measured version."""
        self._measured = event.version
        if event.nodes:
            yield Noted(self.now, notes.Excluded(event.version, event.nodes, event.gain))
