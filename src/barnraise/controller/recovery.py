"""From a run directory to a controller that goes on: the ledger folded, the versions after the checkpoint made again.

Every version that is made again must hash to what the ledger says; a controller that cannot reproduce its past
stops instead of training something else. Where the ledger is from before digests were trees (`models.vectors.bears`),
the version goes by its new digest from there on: workers and snapshots know no other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from barnraise.controller.actions import SlotShare
from barnraise.controller.buffering import shares
from barnraise.controller.folding import apply
from barnraise.controller.parameter_server import Made, ParameterServer
from barnraise.controller.state import State
from barnraise.core.errors import CorruptionError, VersionRefusedError
from barnraise.ledger import Checkpoints, Ledger
from barnraise.ledger.decisions import Noted, VersionClosed, VersionMade
from barnraise.models.vectors import bears


@dataclass
class Replayed:
    """The folded ledger: state, the slots of every version, every version's digest, and the newest run file."""

    state: State = field(default_factory=State)
    slots: dict[int, tuple[SlotShare, ...]] = field(default_factory=dict)
    rates: dict[int, tuple[float, tuple[float, ...]]] = field(default_factory=dict)
    digests: dict[int, str] = field(default_factory=dict)
    run_file: dict[str, Any] = field(default_factory=dict)  # what is kept of it; empty where nothing was
    time: float = 0.0

    @property
    def contributions(self) -> dict[int, tuple[int, ...]]:
        """Version -> the assignments whose contributions made it."""
        return {
            version: tuple(assignment for slot in slots for assignment, _ in slot.contributions)
            for version, slots in self.slots.items()
        }

    def close(self) -> None:
        """Take down the closed buffer, less what was voided since, as what its version is made of."""
        if self.state.closing is not None:
            self.slots[self.state.closing.version] = shares(self.state.closing_slots)

    def open_contributions(self) -> list[int]:
        """Accepted contributions that are in no version yet."""
        slots = (slot for slots in self.state.slots.values() for slot in slots.values())
        return [assignment for slot in slots for assignment, _ in slot.contributions]


def replay(ledger: Ledger) -> Replayed:
    """Fold all decisions."""
    found = Replayed()
    for _, decision in ledger.replay():
        if isinstance(decision, VersionMade):
            found.close()
        apply(found.state, decision)
        found.time = decision.time
        if isinstance(decision, VersionClosed):
            found.rates[decision.version] = decision.rate, decision.scales
        elif isinstance(decision, VersionMade):
            found.digests[decision.version] = decision.digest
        elif isinstance(decision, Noted) and decision.kind == "started":
            found.digests[0] = decision.detail["digest"]
        elif isinstance(decision, Noted) and decision.kind == "run_file":
            found.run_file = decision.detail["content"]
    found.close()
    return found


def restore(
    server: ParameterServer,
    found: Replayed,
    checkpoints: Checkpoints,
    ledger: Ledger,
    warn: Callable[[str], None] = lambda text: None,
) -> list[Made]:
    """Bring `server` to the ledger's newest version: the versions made again, in order.

    The newest good checkpoint is the start; newer ones that are damaged go to `warn`. Raises
    CorruptionError when there is none, a payload is damaged, or a version does not hash to what the ledger says.
    """
    _refuse_newer(found, checkpoints, ledger)
    latest = checkpoints.load_latest()
    if latest.checkpoint is None:
        reasons = "; ".join(f"{item.path.name}: {item.reason}" for item in latest.rejected) or "there is none"
        raise CorruptionError(f"no checkpoint can be used ({reasons}); restore one from a backup")
    version = latest.checkpoint.manifest.version
    for item in latest.rejected:
        warn(f"checkpoint {item.path.name} is passed over: {item.reason}; going back to version {version}")
    server.load(latest.checkpoint.tensors("parameters"), version)
    _check(server, found, version)
    made = []
    for later in range(version + 1, found.state.version + 1):
        try:
            made.append(server.aggregate(later, found.slots[later], ledger.read, *found.rates[later]))
        except VersionRefusedError as error:
            passed_over = "".join(f" or {item.path}" for item in latest.rejected)
            raise CorruptionError(
                f"{error}. It was made once and others have it, so it must be made again to the bit: restore what is "
                f"damaged{passed_over} from a backup, and resume"
            ) from error
        _check(server, found, later)
    if found.state.digest:
        found.state.digest = server.digest
    return made


def _refuse_newer(found: Replayed, checkpoints: Checkpoints, ledger: Ledger) -> None:
    """CorruptionError when there are checkpoints of what the ledger has not seen."""
    newer = [
        checkpoint
        for version, checkpoint in checkpoints.readable().items()
        if version > found.state.version or checkpoint.manifest.ledger_id > ledger.last_id
    ]
    if newer:
        names = " ".join(checkpoint.path.name for checkpoint in newer)
        raise CorruptionError(
            f"there is a checkpoint of version {newer[-1].manifest.version}, but the ledger ends at "
            f"{found.state.version}: it is an older copy, or was copied without its ledger.sqlite-wal, or they are not "
            f"of one run. Nothing was changed: put back the ledger that belongs to {names}. If it is lost, remove "
            f"those (in {newer[-1].path.parent}: rm -r {names}) to go on from where this ledger ends"
        )


def _check(server: ParameterServer, found: Replayed, version: int) -> None:
    expected = found.digests.get(version, server.digest)
    if server.digest != expected and not bears(server.parameters, expected):
        raise CorruptionError(
            f"version {version} was made again, but hashes to {server.digest[:16]} and not to {expected[:16]} as the "
            "ledger says: the run directory was altered, or this machine computes differently"
        )
