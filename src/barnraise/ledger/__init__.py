"""The durable record of a run: ledger, payloads not yet in a checkpoint, checkpoints, and the run directory."""

from barnraise.ledger import notes
from barnraise.ledger.chain import Head
from barnraise.ledger.checkpoints import Checkpoints, Latest, Rejected, StoredCheckpoint
from barnraise.ledger.decisions import (
    AnyDecision,
    Assigned,
    Change,
    Claim,
    Decision,
    Judged,
    NodeChanged,
    Noted,
    Terms,
    VersionClosed,
    VersionMade,
    Weighing,
)
from barnraise.ledger.ledger import Ledger
from barnraise.ledger.lock import RunLock
from barnraise.ledger.outcomes import NodeTotals, Outcomes, RunTotals, VersionRow
from barnraise.ledger.rows import LedgerHash
from barnraise.ledger.run_directory import RunDirectory
from barnraise.ledger.segments import Segments
from barnraise.ledger.simulated import SimulatedLedger
from barnraise.ledger.simulation import Simulation
from barnraise.ledger.view import LedgerView

__all__ = [
    "AnyDecision",
    "Assigned",
    "Change",
    "Checkpoints",
    "Claim",
    "Decision",
    "Head",
    "Judged",
    "Latest",
    "Ledger",
    "LedgerHash",
    "LedgerView",
    "NodeChanged",
    "NodeTotals",
    "Noted",
    "Outcomes",
    "Rejected",
    "RunDirectory",
    "RunLock",
    "RunTotals",
    "Segments",
    "SimulatedLedger",
    "Simulation",
    "StoredCheckpoint",
    "Terms",
    "VersionClosed",
    "VersionMade",
    "VersionRow",
    "Weighing",
    "notes",
]
