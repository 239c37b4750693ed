"""The trustees of a run, which hold the seeds of masks, and their tasks about a list of masked updates.

They judge the entries of a list, endorse it, send sums of masks, and confirm those of other trustees.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from barnraise.controller.fleet.cost_model import CostModel
from barnraise.controller.fleet.records import NodeRecords
from barnraise.controller.state.effects import Listed
from barnraise.controller.state.part import Context, Part, Steps
from barnraise.controller.state.state import NodeState, Work
from barnraise.controller.versions.task_kind import ANY_STALENESS, TaskKind
from barnraise.core.ranges import numbers_in, of_numbers
from barnraise.core.types import (
    Confirm,
    Confirmed,
    Endorse,
    Endorsed,
    Ranges,
    Result,
    Seat,
    Seats,
    Unmask,
    Unmasked,
    Vet,
    Vetted,
)
from barnraise.ledger.decisions import Assigned, Terms
from barnraise.privacy.masking.committee import Committee
from barnraise.privacy.masking.release import ReleaseAction, ReleaseMachine
from barnraise.privacy.masking.vetting import VettingAction, VettingMachine
from barnraise.transport.identity import hexadecimal
from barnraise.trust.roles import TRUSTEE
from barnraise.trust.signatures import endorsed, verified

NOT_OPEN = "the list is not open any more"


class Trustees(Part):
    """Derives the seats from the ledger: they belong to the first trustees that enrolled and were not revoked."""

    def __init__(self, context: Context, records: NodeRecords) -> None:
        super().__init__(context)
        self.records, self.settings = records, context.settings.payloads.protection.masks

    @property
    def seats(self) -> Seats:
        """Return the seats, in the order in which their trustees enrolled.

        One that named no signing key, or that of another trustee, has none: no list could count its signature.
        """
        if self.settings is None:
            return ()
        able: dict[str, NodeState] = {}
        for node in self.state.nodes.values():
            if node.badge.role == TRUSTEE and not node.revoked and node.badge.signer:
                able.setdefault(node.badge.signer, node)
        taken = islice(able.values(), self.settings.trustees)
        return tuple(Seat(node.id, hexadecimal(node.badge.key), node.badge.signer) for node in taken)

    @property
    def lacks(self) -> str:
        """Return which trustees a masked run lacks before it can train; empty when it lacks none."""
        if self.settings is None or (there := len(self.seats)) == self.settings.trustees:
            return ""
        return (
            f"{there} of {self.settings.trustees} trustees have joined; make invites for the others with "
            "`barnraise invite RUN_DIR --role trustee`"
        )

    def present(self, seats: Seats) -> list[int]:
        """Return the numbers of the seats whose trustees take part now."""
        return [number for number, seat in enumerate(seats) if seat.node in self.records.present]


@dataclass
class OpenList:
    """A list that trustees are asked about: as it was made, the digest of it on the ledger, and the committee.

    `signers` are the members' signing keys. The `machine` says what follows from an answer, and `vetting` does before
    the list is fixed; `due` are their actions that were not carried out yet. `faulty` are the members in which trustees
    found a fault, by seat; `came` has the assignments that brought sums of masks, by seeds and digest.
    """

    listed: Listed
    released: str
    signers: tuple[str, ...]
    seats: Seats
    committee: Committee
    machine: ReleaseMachine
    vetting: VettingMachine | None = None
    due: list[ReleaseAction | VettingAction] = field(default_factory=list)
    faulty: dict[int, tuple[int, ...]] = field(default_factory=dict)
    came: dict[tuple[tuple[int, ...], str], int] = field(default_factory=dict)

    @property
    def version(self) -> int:
        """Return the version that the list is for."""
        return self.listed.version

    def seat_of(self, node: str) -> int:
        """Return the number of a trustee's seat."""
        return next(number for number, seat in enumerate(self.seats) if seat.node == node)

    def about(self, number: int) -> dict[str, Any]:
        """Return the fields of a task about the list for the trustee of a seat."""
        return {
            "members": self.listed.content,
            "signers": self.signers,
            "shares": self.listed.shares[number],
            "committee": self.seats,
        }

    @property
    def endorsements(self) -> tuple[str, ...]:
        """Return the signatures by seat, "" where there is none."""
        return tuple(self.machine.signatures.get(seat.node, "") for seat in self.seats)

    def signed_by(self, endorsements: tuple[str, ...]) -> dict[str, str]:
        """Return signatures that are given by seat, by the trustees' names."""
        pairs = zip(self.seats, endorsements, strict=False)
        return {seat.node: signature for seat, signature in pairs if signature}

    def found_faulty(self) -> set[int]:
        """Return the members in which more trustees found a fault than may collude."""
        votes = Counter(number for numbers in self.faulty.values() for number in numbers)
        return {number for number, count in votes.items() if count > self.committee.collude}


class AboutList(TaskKind):
    """A kind of task about the `list` of the version that is being made; the part that opens it sets it."""

    def __init__(self, context: Context, cost_model: CostModel) -> None:
        super().__init__(context, cost_model)
        self.list: OpenList | None = None

    def begin(self, number: int, seeds: Ranges = (0, 1)) -> Assigned:
        """Return the assignment of a task for the trustee of a seat, about these `seeds` where it is about masks."""
        assert self.list is not None
        return Assigned(
            time=self.now,
            assignment=self.state.totals.assigned + 1,
            node=self.list.seats[number].node,
            kind=self.name,
            base=self.list.version - 1,
            tokens=0,
            local_steps=0,
            rows=(),
            cursor=self.state.totals.rows,
            terms=Terms(max_staleness=ANY_STALENESS, learning_rate=0.0, parameters=seeds),
        )

    def ask(self, number: int, seeds: tuple[int, ...] = ()) -> Steps:
        """Give the task to the trustee of a seat."""
        raise NotImplementedError

    def suits(self, node: NodeState, have: int) -> bool:
        return False  # its trustee is asked, not matched

    def too_late(self, work: Work) -> str:
        return "" if self.list is not None and work.base + 1 == self.list.version else NOT_OPEN


class Vetting(AboutList):
    """Asks trustees which entries of a list they refuse, before it is fixed."""

    task = Vet

    def ask(self, number: int, seeds: tuple[int, ...] = ()) -> Steps:
        assert self.list is not None
        decision = self.begin(number)
        yield from self.assigned(decision, Vet(id=decision.assignment, base=decision.base, **self.list.about(number)))

    def taken(self, result: Result, work: Work) -> Steps:
        assert isinstance(result, Vetted)
        if (asked := self.list) is not None and (machine := asked.vetting) is not None:
            number = asked.seat_of(work.node)
            if result.reason and not result.faulty and not result.unlisted:
                asked.due += machine.refused(number, result.reason)
            else:
                asked.due += machine.vetted(number, result.faulty, result.unlisted)
        yield from ()


class Endorsing(AboutList):
    """Asks trustees to sign the digest of the list."""

    task = Endorse

    def ask(self, number: int, seeds: tuple[int, ...] = ()) -> Steps:
        assert self.list is not None
        decision = self.begin(number)
        yield from self.assigned(
            decision, Endorse(id=decision.assignment, base=decision.base, **self.list.about(number))
        )

    def refuse(self, result: Result, work: Work, version: int) -> str:
        assert isinstance(result, Endorsed)
        if self.list is None or not result.endorsement:
            return ""
        statement = endorsed(self.context.settings.run, work.node, self.list.listed.digest)
        if verified(statement, result.endorsement, self.list.seats[self.list.seat_of(work.node)].signer):
            return ""
        return "the endorsement is not a signature of the list's digest by this trustee's key"

    def taken(self, result: Result, work: Work) -> Steps:
        assert isinstance(result, Endorsed)
        if (asked := self.list) is not None:
            number = asked.seat_of(work.node)
            if result.endorsement:
                asked.due += asked.machine.endorsed(number, result.endorsement)
            else:
                asked.faulty[number] = result.faulty
                asked.due += asked.machine.refused(number, result.reason or "without a reason")
        yield from ()


class Confirming(AboutList):
    """Asks trustees for the digests of sums of masks that another one sends."""

    task: type[Confirm] | type[Unmask] = Confirm

    def ask(self, number: int, seeds: tuple[int, ...] = ()) -> Steps:
        assert self.list is not None
        decision = self.begin(number, of_numbers(seeds))
        task = self.task(
            id=decision.assignment,
            base=decision.base,
            endorsements=self.list.endorsements,
            seeds=decision.terms.parameters,
            **self.list.about(number),
        )
        yield from self.assigned(decision, task)

    def taken(self, result: Result, work: Work) -> Steps:
        assert isinstance(result, Confirmed)
        yield from self._answered(work, result.digest, result.reason, sent=False)

    def _answered(self, work: Work, digest: str, reason: str, *, sent: bool) -> Steps:
        if (asked := self.list) is not None:
            number, machine = asked.seat_of(work.node), asked.machine
            seeds = tuple(numbers_in(work.terms.parameters))
            asked.due += machine.refused(number, reason) if reason else machine.answered(number, seeds, digest, sent)
        yield from ()


class SendingMasks(Confirming):
    """Asks trustees for sums of masks, as payloads."""

    task = Unmask

    def __init__(self, context: Context, cost_model: CostModel) -> None:
        super().__init__(context, cost_model)
        self.settings = context.settings.payloads.protection.masks

    def refuse(self, result: Result, work: Work, version: int) -> str:
        assert isinstance(result, Unmasked)
        if self.list is None or self.settings is None:
            return ""
        groups = self.list.listed.num_groups
        if result.payload.num_bytes != groups * self.settings.sum_bytes:
            wanted = groups * self.settings.sum_bytes
            return f"sums of masks of {result.payload.num_bytes} bytes, but {groups} groups need {wanted}"
        return ""

    def taken(self, result: Result, work: Work) -> Steps:
        assert isinstance(result, Unmasked)
        if (asked := self.list) is not None:
            asked.came[tuple(numbers_in(work.terms.parameters)), result.payload.digest] = work.assignment
        yield from self._answered(work, result.payload.digest, "", sent=True)
