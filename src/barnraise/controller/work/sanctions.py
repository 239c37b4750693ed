"""The consequences of a verdict against a node: dismissal, removal of contributions, and quarantine.

The verdict follows from others' work, its own updates or its messages. Its contributions that are in no version yet are
taken back, and for a while it gets no tasks (`trust.reputation`).
"""

from __future__ import annotations

from barnraise.controller.fleet.membership import Membership
from barnraise.controller.state.actions import Send
from barnraise.controller.state.part import Context, Part, Steps
from barnraise.ledger import notes
from barnraise.ledger.decisions import Change, Noted
from barnraise.wire.messages import FOR_GOOD, Stop


class Sanctions(Part):
    """Keeps nothing: what was noted is on the ledger, and who stays away `backoff` knows."""

    def __init__(self, context: Context, membership: Membership) -> None:
        super().__init__(context)
        self.membership = membership

    def until(self, node: str) -> float | None:
        """Until when it gets no tasks if it is found guilty now; None: it never gets any again."""
        reputation = self.state.nodes[node].tally.reputation.after_conviction(self.now)
        return None if reputation.banned else reputation.until

    def pass_on(self, node: str, note: notes.Sentence, reason: str) -> Steps:
        """`note` is the finding; the node is told the `reason`."""
        yield Noted(self.now, note, node)
        held = [held for slot in self.state.buffer.slots.get(node, {}).values() for held in slot.contributions]
        version = self.state.newest.version + 1 + (self.state.closing is not None)
        for one in held:
            yield Noted(self.now, notes.Voided(one.assignment, version, reason, True), node)
        yield Send(node, Stop(reason, final=note.until is None, refusal=FOR_GOOD if note.until is None else ""))
        yield from self.membership.gone(node, reason, Change.DISMISSED)
