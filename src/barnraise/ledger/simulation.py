"""The file `simulation.json`, which marks a run directory as a simulation's."""

from __future__ import annotations

from pathlib import Path

import msgspec

from barnraise.core.decoding import MALFORMED
from barnraise.core.errors import CorruptionError
from barnraise.core.types import Count
from barnraise.ledger.disk import storage_errors

_LIMIT = 1 << 20


class Simulation(msgspec.Struct, frozen=True):
    """The parameters of a simulation, and facts about it that no row of its ledger has.

    `hours` of virtual time, None: until the token budget; `churn` as it was asked for, "": none; `real` tensors. `end`
    is the reason of its end, "" for one that runs or was cut short.
    """

    nodes: Count
    seed: int
    snapshot_bytes: Count
    hours: float | None = None
    churn: str = ""
    real: bool = False
    end: str = ""
    bytes_up: Count = 0
    bytes_down: Count = 0

    def encode(self) -> bytes:
        """Return the content of the file."""
        return msgspec.json.format(msgspec.json.encode(self)) + b"\n"


def read(path: Path) -> Simulation | None:
    """Read the file at `path`; None when there is none. Raises CorruptionError, StorageError."""
    with storage_errors(path, "read"):
        try:
            with path.open("rb") as file:
                content = file.read(_LIMIT)
        except (FileNotFoundError, NotADirectoryError):
            return None
    try:
        return msgspec.json.decode(content, type=Simulation)
    except MALFORMED as error:
        raise CorruptionError(f"{path} is damaged ({error}): restore it from a copy, or simulate again") from error
