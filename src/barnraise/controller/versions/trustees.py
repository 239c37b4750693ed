"""The trustees of a run, which hold the seeds of masks, and their seats in its committee."""

from __future__ import annotations

from barnraise.controller.fleet.records import NodeRecords
from barnraise.controller.state.part import Context, Part
from barnraise.core.types import Seat, Seats
from barnraise.transport.identity import hexadecimal
from barnraise.trust.roles import TRUSTEE


class Trustees(Part):
    """Derives the seats from the ledger: they belong to the first trustees that enrolled and were not revoked."""

    def __init__(self, context: Context, records: NodeRecords) -> None:
        super().__init__(context)
        self.records, self.settings = records, context.settings.masks

    @property
    def seats(self) -> Seats:
        """Return the seats, in the order in which their trustees enrolled."""
        if self.settings is None:
            return ()
        able = (node for node in self.state.nodes.values() if node.badge.role == TRUSTEE and not node.revoked)
        taken = zip(range(self.settings.trustees), able, strict=False)
        return tuple(Seat(node.id, hexadecimal(node.badge.key), node.badge.signer) for _, node in taken)

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
