"""Proofs for members that their masked updates are in a version, and the news that they are not.

A member gets the list that has its update, with the trustees' signatures of it, once the version is made. A member that
is away gets the newest of them when it returns, unless the controller was restarted since.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from barnraise.controller.fleet.records import NodeRecords
from barnraise.controller.state.actions import Send
from barnraise.controller.state.part import Context, Part, Steps
from barnraise.controller.versions.unmasking import Unmasking
from barnraise.ledger import notes
from barnraise.ledger.decisions import Decision, Noted, VersionMade
from barnraise.wire.messages import Included

KEPT = 4
"""Proofs that are kept for a node."""

REASON = 1000
"""Characters of a reason that are sent."""


class Proving(Part):
    """Keeps the newest proofs of each node, and which nodes have yet to be told."""

    def __init__(self, context: Context, records: NodeRecords, unmasking: Unmasking) -> None:
        super().__init__(context)
        self.records, self.unmasking = records, unmasking
        self._kept: dict[str, deque[Included]] = {}
        self._untold: dict[str, None] = {}
        self._told: dict[str, set[int]] = {}  # assignments that the node's session was told of
        self._left_out: dict[int, str] = {}  # assignments that the version in the making is without, and why

    def look(self) -> Steps:
        """Tell the nodes that are present."""
        for node in [node for node in self._untold if node in self.records.present]:
            del self._untold[node]
            told = self._told.setdefault(node, set())
            for proof in self._kept[node]:
                if proof.assignment not in told:
                    yield Send(node, proof)
            self._told[node] = {proof.assignment for proof in self._kept[node]}

    def forget(self, node: str) -> None:
        """Tell the node again when it is back: it may have missed what was on its way."""
        self._told.pop(node, None)
        if node in self._kept:
            self._untold[node] = None

    def _keep(self, node: str, proof: Included) -> None:
        self._kept.setdefault(node, deque(maxlen=KEPT)).append(proof)
        self._untold[node] = None

    def _made(self, d: VersionMade) -> None:
        asked = self.unmasking.list
        if asked is None or asked.version != d.version:
            return
        members, digest, signed = asked.listed.content, asked.listed.digest, asked.endorsements
        left_out, self._left_out = self._left_out, {}
        for member in self.unmasking.members:
            if why := left_out.get(member.assignment):
                self._keep(member.node, Included(member.assignment, d.version, reason=why[:REASON]))
            else:
                self._keep(member.node, Included(member.assignment, d.version, members, digest, signed))

    def _noted(self, d: Noted) -> None:
        if isinstance(d.note, notes.GroupLeftOut):
            self._left_out |= dict.fromkeys(d.note.contributions, d.note.reason)
        elif isinstance(d.note, notes.Voided) and self.context.settings.payloads.protection.masks is not None:
            self._keep(d.node, Included(d.note.assignment, d.note.version, reason=d.note.reason[:REASON]))

    def sees(self) -> dict[type[Decision], Callable[[Any], None]]:
        return {VersionMade: self._made, Noted: self._noted}
