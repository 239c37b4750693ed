"""Verification of a ledger's signatures, from the ledger alone.

Each accepted contribution of a node that signs has to be signed by a key of the node's that is on the ledger before it:
the one that it enrolled with, or a later one. Refused contributions prove nothing and are not checked, and simulated
ones, or those from before nodes signed, have no signatures: they are counted separately.
"""

from __future__ import annotations

from barnraise.ledger.decisions import Change, Decision, Judged, NodeChanged, Noted
from barnraise.ledger.notes import NOT_SIGNED, Started
from barnraise.trust.signatures import RunId, contributed, delivered, verified


class Signatures:
    """Checks the rows of a ledger in order, from the first on, and counts signed and unsigned ones.

    `run` is the ledger's expected run; None: the one that its first row names.
    """

    def __init__(self, run: RunId | None = None) -> None:
        self.run = run
        self.signed = self.unsigned = 0
        self._keys: dict[str, list[str]] = {}  # keys of a node, the newest first

    def wrong(self, decision: Decision) -> str:
        """Return the defect of this row's signature; empty when it is right, or the row needs none."""
        if isinstance(decision, Noted) and isinstance(decision.note, Started) and self.run is None:
            self.run = RunId(decision.note.run, decision.note.key)
        elif isinstance(decision, NodeChanged) and decision.change in (Change.ENROLLED, Change.REKEYED):
            if decision.signer:
                self._keys.setdefault(decision.node, []).insert(0, decision.signer)
        elif isinstance(decision, Judged) and decision.brings:
            return self._wrong(decision)
        return ""

    def _wrong(self, judged: Judged) -> str:
        keys, claim = self._keys.get(judged.node, ()), judged.claim
        if not keys:
            self.unsigned += 1
            return ""
        run = self.run or RunId("")
        if claim.result in ("", "update"):
            work = claim.base, claim.steps, claim.codec
            told = contributed(run, judged.node, judged.assignment, work, claim.transcript, claim.digest)
        else:
            done = judged.assignment, claim.base, claim.steps
            told = delivered(run, judged.node, claim.result, done, claim.digest)
        if any(verified(told, claim.signature, key) for key in keys):
            self.signed += 1
            return ""
        return f"contribution {judged.assignment} of '{judged.node}' {NOT_SIGNED}"
