"""From a run directory to a working controller: ledger folded, versions after the checkpoint made again.

Every version that is made again must hash to the ledger's digest; a controller that cannot reproduce its past stops
instead of training another model. Where the ledger is from before digests were trees (`models.vectors.bears`), the
version has its new digest from there on: workers and snapshots know no other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from barnraise.controller.state import saved
from barnraise.controller.state.actions import Slot
from barnraise.controller.state.fold import apply
from barnraise.controller.state.state import State
from barnraise.controller.tensors.parameter_server import Made, ParameterServer
from barnraise.core.errors import CorruptionError, VersionRefusedError
from barnraise.ledger import Checkpoints, Latest, Ledger, notes
from barnraise.ledger.decisions import AnyDecision, Noted, VersionClosed, VersionMade
from barnraise.models.vectors import bears


@dataclass
class Replayed:
    """The folded ledger: its state, and slots and digests of the versions after the checkpoint (all, without one)."""

    state: State = field(default_factory=State)
    slots: dict[int, tuple[Slot, ...]] = field(default_factory=dict)
    masks: dict[int, tuple[int, ...]] = field(default_factory=dict)
    rates: dict[int, tuple[float, tuple[float, ...]]] = field(default_factory=dict)
    digests: dict[int, str] = field(default_factory=dict)
    time: float = 0.0
    latest: Latest = field(default_factory=lambda: Latest(None))

    def take(self, decision: AnyDecision) -> None:
        """Fold the next decision."""
        if isinstance(decision, VersionMade):
            self.close()
        apply(self.state, decision)
        self.time = decision.time
        if isinstance(decision, VersionClosed):
            self.rates[decision.version] = decision.rate, decision.scales
        elif isinstance(decision, VersionMade):
            self.digests[decision.version] = decision.digest
        elif isinstance(decision, Noted) and isinstance(decision.note, notes.Started):
            self.digests[0] = decision.note.digest

    def close(self) -> None:
        """Record the closed buffer, less contributions voided since, as the content of its version."""
        if self.state.closing is not None:
            closing = self.state.closing
            self.slots[closing.version] = tuple(closing.slots)
            self.masks[closing.version] = closing.masks

    def open_contributions(self) -> list[int]:
        """Return the accepted contributions that are in no version yet."""
        slots = (slot for slots in self.state.buffer.slots.values() for slot in slots.values())
        return [held.assignment for slot in slots for held in slot.contributions]


def replay(ledger: Ledger, checkpoints: Checkpoints | None = None) -> Replayed:
    """Fold all decisions; with checkpoints, those after the newest good one, which has the state before them."""
    found = Replayed()
    after_id = _begin(found, ledger, checkpoints) if checkpoints is not None else 0
    for _, decision in ledger.replay(after_id):
        found.take(decision)
    found.close()
    return found


def _begin(found: Replayed, ledger: Ledger, checkpoints: Checkpoints) -> int:
    """Load the newest good checkpoint's state, and return the id of the last decision in it."""
    found.latest = checkpoints.load_latest()
    checkpoint = found.latest.checkpoint
    if checkpoint is None or checkpoint.manifest.ledger_id > ledger.last_id:
        return 0
    kept = saved.decode(checkpoint.state())
    if kept is None or kept[0].newest.version != checkpoint.manifest.version:
        return 0
    found.state, found.time = kept
    found.digests[found.state.newest.version] = found.state.newest.digest
    if found.state.closing is not None:
        found.rates[found.state.closing.version] = found.state.closing.rate, found.state.closing.scales
    return checkpoint.manifest.ledger_id


def restore(
    server: ParameterServer,
    found: Replayed,
    checkpoints: Checkpoints,
    ledger: Ledger,
    warn: Callable[[str], None] = lambda text: None,
) -> list[Made]:
    """Bring `server` to the ledger's newest version, and return the versions made again, in order.

    The newest good checkpoint is the start; newer ones that are damaged are reported to `warn`. Raises CorruptionError
    when there is none, a payload is damaged, or a version does not hash to the ledger's digest.
    """
    _refuse_newer(found, checkpoints, ledger)
    latest = found.latest
    if latest.checkpoint is None:
        reasons = "; ".join(f"{item.path.name}: {item.reason}" for item in latest.rejected) or "there is none"
        raise CorruptionError(f"no checkpoint can be used ({reasons}); restore one from a backup")
    version = latest.checkpoint.manifest.version
    for item in latest.rejected:
        warn(f"checkpoint {item.path.name} is passed over: {item.reason}; going back to version {version}")
    server.load(latest.checkpoint.tensors("parameters"), version)
    _check(server, found, version)
    made = []
    for later in range(version + 1, found.state.newest.version + 1):
        try:
            given = found.slots[later], ledger.read, *found.rates[later]
            made.append(server.aggregate(later, *given, masks=found.masks.get(later, ())))
        except VersionRefusedError as error:
            passed_over = "".join(f" or {item.path}" for item in latest.rejected)
            raise CorruptionError(
                f"{error}. It was made once and others have it, so it must be made again to the bit: restore what is "
                f"damaged{passed_over} from a backup, and resume"
            ) from error
        _check(server, found, later)
    if found.state.newest.digest:
        found.state.newest.digest = server.digest
    return made


def _refuse_newer(found: Replayed, checkpoints: Checkpoints, ledger: Ledger) -> None:
    """Raise CorruptionError when there are checkpoints beyond the ledger's rows."""
    newer = [
        checkpoint
        for version, checkpoint in checkpoints.readable().items()
        if version > found.state.newest.version or checkpoint.manifest.ledger_id > ledger.last_id
    ]
    if newer:
        names = " ".join(checkpoint.path.name for checkpoint in newer)
        raise CorruptionError(
            f"there is a checkpoint of version {newer[-1].manifest.version}, but the ledger ends at "
            f"{found.state.newest.version}: it is an older copy, or was copied without its ledger.sqlite-wal, or they "
            f"are not of one run. Nothing was changed: put back the ledger that belongs to {names}. If it is lost, "
            f"remove those (in {newer[-1].path.parent}: rm -r {names}) to continue from the end of this ledger"
        )


def _check(server: ParameterServer, found: Replayed, version: int) -> None:
    expected = found.digests.get(version, server.digest)
    if server.digest != expected and not bears(server.parameters, expected):
        raise CorruptionError(
            f"version {version} was made again, but hashes to {server.digest[:16]} and not to {expected[:16]} as the "
            "ledger says: the run directory was altered, or this machine computes differently"
        )
