"""Cohorts: assignments that belong together, and the rule by which their results are complete.

A kind of task says how its assignments gather (`Task.gathers`). Copies of late work are a cohort of which the first
result counts. The measurements of one piece of the held-out rows are a cohort whose results must agree, and so are the
audits of one contribution. The tasks of a synchronous round are a cohort that is complete with a share of the live
nodes. The fold keeps the first, second and fourth in the state; those of audits are not on the ledger
(`work.auditing`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from barnraise.core.types import Completion, RowRange

OPEN, IN, OUT = "open", "in", "out"
"""Stages of a member: its node works on it; its result was accepted; it will bring none."""


class Member(NamedTuple):
    """An assignment in a cohort: its node and its stage."""

    node: str
    stage: str = OPEN


class Cohort(msgspec.Struct):
    """Assignments that belong together.

    `number` is the assignment that opened it. It has `places` for results; 0: one for each live node. A member that
    drops out leaves its place to another assignment.
    """

    number: int
    kind: str
    base: int
    completion: Completion
    rows: tuple[RowRange, ...] = ()  # those that all members have; empty: each has its own
    places: int = 0
    members: dict[int, Member] = {}
    complete_at: float = math.inf  # since when it is complete

    @property
    def open(self) -> bool:
        """Return whether any member may still bring a result."""
        return any(member.stage == OPEN for member in self.members.values())

    @property
    def nodes(self) -> frozenset[str]:
        """Return the nodes of all members, also of those that dropped out."""
        return frozenset(member.node for member in self.members.values())

    @property
    def came(self) -> frozenset[str]:
        """Return the nodes whose results were accepted."""
        return frozenset(member.node for member in self.members.values() if member.stage == IN)

    def others(self, assignment: int) -> Iterator[int]:
        """Yield the members besides `assignment` that are open, or whose result was accepted."""
        for number, member in self.members.items():
            if number != assignment and member.stage != OUT:
                yield number

    def join(self, assignment: int, node: str) -> None:
        """Add a member, or one that had dropped out again."""
        self.members[assignment] = Member(node)

    def settle(self, assignment: int, stage: str, time: float, live: int) -> None:
        """Record the end of a member's work, at `time`, while `live` nodes take part."""
        if assignment not in self.members:  # it was in an earlier cohort with that number
            return
        self.members[assignment] = Member(self.members[assignment].node, stage)
        if not self.came:
            self.complete_at = math.inf
        elif stage == IN and self.complete_at == math.inf and self.complete(live):
            self.complete_at = time

    def complete(self, live: int) -> bool:
        """Return whether enough results were accepted, with `live` nodes that take part."""
        rule, least, share = self.completion
        count, places = len(self.came), self.places or live
        if rule == "first":
            return count > 0
        if rule == "agree":
            return count >= least
        if rule == "share":
            return count >= share * places
        return sum(member.stage == IN for member in self.members.values()) >= places  # sum, all
