"""Unacceptable results, and the consequences for nodes that submit them repeatedly.

Results that no correct node sends (`admission.Offence`: more steps than were assigned, bytes in a number that no codec
writes, a wrong signature) are offences: after MOST of them, in any order, the node is sentenced as one that was
convicted. An update that is not finite, or far too large, may result from a learning rate that is too high: after MOST
in a row the node is sent away, and rests longer each time it returns (`backoff`).
"""

from __future__ import annotations

from barnraise.controller.fleet.membership import Membership
from barnraise.controller.fleet.records import NodeRecords
from barnraise.controller.state.actions import Send
from barnraise.controller.state.part import Context, Part, Steps
from barnraise.controller.work.admission import Offence
from barnraise.controller.work.sanctions import Sanctions
from barnraise.core.errors import DIVERGED
from barnraise.ledger import notes
from barnraise.ledger.decisions import Change
from barnraise.wire.messages import Stop

MOST = 10
"""Offences, or unacceptable updates in a row, after which a node is not asked for more."""


class Offences(Part):
    """Counts each node's offences, and how many of its updates in a row could not be taken."""

    def __init__(self, context: Context, records: NodeRecords, membership: Membership, sanctions: Sanctions) -> None:
        super().__init__(context)
        self.records, self.membership, self.sanctions = records, membership, sanctions

    def refused(self, node: str, assignment: int, reason: str) -> Steps:
        """Record a result that was refused by its header."""
        if not isinstance(reason, Offence):
            return
        conduct = self.records[node].conduct
        conduct.offences += 1
        if conduct.offences >= MOST:
            count, conduct.offences = conduct.offences, 0
            note = notes.Offended(assignment, count, str(reason), self.sanctions.until(node))
            told = f"{count} results that no honest machine produces, the last of which {reason}"
            yield from self.sanctions.pass_on(node, note, told)

    def inspected(self, node: str, wrong: str) -> Steps:
        """Record an inspected update and its defect `wrong`; empty: none."""
        conduct = self.records[node].conduct
        conduct.unusable = conduct.unusable + 1 if wrong else 0
        if conduct.unusable >= MOST:
            conduct.unusable = 0
            reason = (
                f"{DIVERGED}: {MOST} updates in a row could not be taken (the last: {wrong}); "
                "lower the learning rate, or raise warmup_tokens"
            )
            yield Send(node, Stop(reason, final=False))
            yield from self.membership.gone(node, reason, Change.DISMISSED)
