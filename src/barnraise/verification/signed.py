"""Check that each contribution is signed by its node."""

from __future__ import annotations

from barnraise.ledger.evidence import Signatures
from barnraise.verification.check import Check
from barnraise.verification.subject import LedgerRow


class SignedCheck(Check):
    name = "signatures"
    says = "Each contribution of a node that signs bears a signature of one of the keys that the node had by then."

    def __init__(self) -> None:
        super().__init__()
        self._signatures = Signatures()

    def row(self, row: LedgerRow) -> None:
        if row.decision is not None and (wrong := self._signatures.wrong(row.decision)):
            self.wrong(
                "ledger.sqlite",
                f"row {row.id} of table {row.form.table}",
                expected="a signature of what the row says, by a key of its node",
                found=wrong,
                remedy="believe the record that the node itself keeps: no other machine can sign for it",
            )

    def end(self) -> None:
        if unsigned := self._signatures.unsigned:
            self.leave(
                "contributions of nodes that have no key on the ledger",
                "an older barnraise or a simulation made them; a worker of today signs what it sends",
                unsigned,
            )
        self.figures |= {"signed": self._signatures.signed, "of nodes that sign nothing": self._signatures.unsigned}
