"""The consequences of a verdict against a node, and of results that the controller cannot accept.

A verdict follows from the work of other nodes, or from the node's own updates or messages. The controller takes back
the node's contributions that are in no version yet, and gives it no tasks for a while (`trust.reputation`).

Results that no correct node sends (`admission.Offence`: more steps than were assigned, bytes in a number that no codec
writes, a wrong signature) are offences: after MOST of them, in any order, the controller sentences the node as one that
was convicted. An update that is not finite, or far too large, may result from a learning rate that is too high: after
MOST in a row the controller sends the node away, and it rests longer each time it returns (`backoff`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnraise.controller.fleet.membership import Membership
from barnraise.controller.fleet.records import NodeRecords
from barnraise.controller.state.actions import Send
from barnraise.controller.state.events import Event, Faulty
from barnraise.controller.state.part import Context, Part, Steps
from barnraise.controller.work.admission import Offence
from barnraise.core.errors import DIVERGED
from barnraise.ledger import notes
from barnraise.ledger.decisions import Change, Noted
from barnraise.wire.messages import FOR_GOOD, Stop

MOST = 10
"""Offences, or unacceptable updates in a row, after which a node is not asked for more."""


class Sanctions(Part):
    """Dismisses nodes that were convicted.

    The finding is on the ledger, and `backoff` knows until when the node gets no tasks.
    """

    def __init__(self, context: Context, membership: Membership) -> None:
        super().__init__(context)
        self.membership = membership

    def until(self, node: str) -> float | None:
        """Return until when a node gets no tasks if it is found guilty now; None: it never gets any again."""
        reputation = self.state.nodes[node].tally.reputation.after_conviction(self.now)
        return None if reputation.banned else reputation.until

    def pass_on(self, node: str, note: notes.Sentence, reason: str) -> Steps:
        """Note the finding, take back the node's contributions, tell the node the `reason`, and dismiss it."""
        yield Noted(self.now, note, node)
        held = [held for slot in self.state.buffer.slots.get(node, {}).values() for held in slot.contributions]
        version = self.state.newest.version + 1 + (self.state.closing is not None)
        for one in held:
            yield Noted(self.now, notes.Voided(one.assignment, version, reason, True), node)
        yield Send(node, Stop(reason, final=note.until is None, refusal=FOR_GOOD if note.until is None else ""))
        yield from self.membership.gone(node, reason, Change.DISMISSED)


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

    def _faulty(self, event: Faulty) -> Steps:
        """Sentence a node whose result others, who are independent of each other, found to be malformed."""
        if not self.state.nodes[event.node].revoked:
            note = notes.Offended(event.assignment, 1, event.reason, self.sanctions.until(event.node))
            yield from self.sanctions.pass_on(event.node, note, event.reason)

    def events(self) -> dict[type[Event], Callable[[Any], Steps]]:
        return {Faulty: self._faulty}

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
