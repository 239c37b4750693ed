"""The ledger of a simulation, which keeps its decisions for later readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from barnraise.ledger.decisions import Decision
from barnraise.ledger.ledger import Ledger, transaction
from barnraise.ledger.segments import PayloadBytes


class SimulatedLedger(Ledger):
    """A ledger without payloads, whose newest rows a power loss may take: nothing was promised for them."""

    def __init__(self, path: Path, run: str) -> None:
        """Raises StorageError."""
        super().__init__(path, run=run)
        self._connection.execute("PRAGMA synchronous = OFF")

    def commit(self, decisions: Sequence[Decision], payloads: Mapping[int, PayloadBytes] | None = None) -> int:
        """Write decisions, all or none, in their order; returns the id of the last. Raises StorageError."""
        assert not payloads, "a simulation's payloads are not kept"
        if decisions:
            self.head = self._insert(decisions, self._durable)
            self.last_id += len(decisions)
        return self.last_id

    def begin_epoch(self) -> None:
        """Count the rows from now on as another controller's."""
        with transaction(self._connection, self.path):
            self._set_meta(epoch=self.epoch + 1)
        self.epoch += 1
