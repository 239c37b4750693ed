"""The account of a run: every figure that a host is shown at its end or on the way, from the ledger alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

from barnraise.account import cache
from barnraise.account.chronicle import Happening
from barnraise.account.doubts import Doubt
from barnraise.account.folded import Folded, OverTime
from barnraise.account.market import UNTOLD, MarketStatus, market_of
from barnraise.account.matched import Matching, as_figures
from barnraise.account.merging import Merging, merging
from barnraise.account.metrics import Measurements, figures, measurements
from barnraise.account.reducer import RowFeed
from barnraise.account.spent import SpentBudget
from barnraise.config.changes import kept
from barnraise.config.load import load
from barnraise.core.errors import RunDirectoryError
from barnraise.ledger import LedgerView, NodeTotals, RunDirectory, RunTotals, Simulation, notes
from barnraise.ledger.outcomes import AssignmentRow, LossPoint
from barnraise.wire.manifest import MANIFEST_LIMIT, Manifest

FLOAT_BYTES = 4
EVALUATED = notes.kind_of(notes.Evaluated)
MANIFEST = "manifest.json"

LEAST_KEPT = 20_000
"""Rows of a ledger from which on a cache file is worth it."""


@dataclass(frozen=True)
class Dispatched:
    """The matching of tasks and nodes, or the reason why no market stands.

    The newest use of nodes' time; the median error of expected task times, as a share (None: no node had done enough),
    the share of those `within` the expected standard deviation, and their number. `doubts` are the reasons why nodes
    get no tasks at that time (`account.nodes`): repeated losses, or a verdict. `privacy`: the budget that tasks spend.
    `overhead`: the median alpha of protections by the workers' own reports.
    """

    matching: Matching | None = None
    market: MarketStatus = UNTOLD
    employed: notes.Employed | None = None
    error: float | None = None
    within: float | None = None
    foreseen: int = 0
    doubts: Mapping[str, Doubt] = field(default_factory=dict)
    privacy: SpentBudget = field(default_factory=SpentBudget)
    overhead: float | None = None


@dataclass(frozen=True)
class Account:
    """A run so far.

    `finished` is the reason of its end, empty before; `end` is the run's clock at its last row.
    """

    run: RunDirectory
    totals: RunTotals
    nodes: list[NodeTotals]
    losses: list[LossPoint]
    refusals: dict[str, int]
    traffic: notes.Traffic
    happenings: list[Happening]
    finished: str
    end: float
    merging: Merging
    dispatch: Dispatched = Dispatched()
    measurements: Measurements = field(default_factory=Measurements)

    @property
    def lowered(self) -> float | None:
        """Return since when contributions are acknowledged without the standby that they should wait for."""
        lowered = notes.kind_of(notes.DurabilityLowered)
        kinds = (lowered, notes.kind_of(notes.DurabilityRestored), notes.kind_of(notes.Resumed))
        last = next((one for one in reversed(self.happenings) if one.kind in kinds), None)
        return last.time if last is not None and last.kind == lowered else None

    @property
    def tokens_per_second(self) -> float:
        return self.totals.tokens / self.totals.seconds if self.totals.seconds > 0 else 0.0

    @property
    def first_loss(self) -> float | None:
        return self.losses[0].loss if self.losses else None

    @property
    def final_loss(self) -> float | None:
        return self.losses[-1].loss if self.losses else None

    @property
    def snapshot_bytes(self) -> int:
        if (simulation := self.simulation) is not None:
            return simulation.snapshot_bytes
        return FLOAT_BYTES * manifest(self.run).trained

    @property
    def simulation(self) -> Simulation | None:
        """Return the parameters of a simulated run; None for a real one."""
        return self.run.simulation

    def as_json(self) -> dict[str, Any]:
        """Return the end of `train --json` and `resume --json`; totals are over the whole run."""
        totals, employed = self.totals, self.dispatch.employed
        return {
            "run_dir": str(self.run.path),
            "model_dir": str(self.run.model) if self.run.model.is_dir() else None,
            "simulated": self.simulation is not None,
            "versions": max(0, totals.version),
            "tokens": totals.tokens,
            "seconds": round(totals.seconds, 3),
            "tokens_per_second": round(self.tokens_per_second, 1),
            "first_loss": self.first_loss,
            "final_loss": self.final_loss,
            "bytes_up": self.traffic.up,
            "bytes_down": self.traffic.down,
            "snapshot_bytes": self.snapshot_bytes,
            "accepted": totals.accepted,
            "refused": totals.refused,
            "discarded": totals.discarded,
            "signed": totals.signed,
            "audited": totals.looked_at.anew,
            "unaudited": totals.looked_at.lapsed,
            "workers": totals.contributors,
            "idle": employed.idle if employed else None,
            "conflicts": employed.conflicts if employed else None,
            "prediction_error": self.dispatch.error,
            "predicted_within": self.dispatch.within,
            **as_figures(self.dispatch.matching),
            "privacy": self.dispatch.privacy.as_json(),
            "overhead": self.dispatch.overhead,
            "market": self.dispatch.market.stands,
            "no_market": "" if self.dispatch.market.stands else self.dispatch.market.why,
            **figures(self.measurements),
        }


class AccountReader:
    """Reads the account of a run again and again, at the cost of the ledger's new rows.

    It begins with the run's cache file where that fits, and writes one where many rows are new. It has one
    connection to the ledger: for one thread at a time. A reader that raised may not be used again.
    """

    def __init__(self, run: RunDirectory) -> None:
        """Raises RunDirectoryError when the run has no ledger, StorageError."""
        self.run = run
        self._run_file: dict[str, Any] = {}
        self._view = LedgerView(run.ledger)
        try:
            self._folded, self._kept = cache.load(run, self._view) or (Folded(), 0)
        except BaseException:
            self._view.close()
            raise
        reducers, timeline = self._folded.reducers, self._folded.timeline
        self._feed = RowFeed(self._view, reducers, after=self._kept, timeline=timeline)

    @property
    def rows(self) -> int:
        """Return how many rows of the ledger have been read."""
        return self._feed.rows

    @property
    def over_time(self) -> OverTime:
        """Return what is folded over the run's time, as of the last reading."""
        return self._folded.over_time

    def close(self) -> None:
        """Close the connection to the ledger."""
        self._view.close()

    def __enter__(self) -> AccountReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def advance(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Read the new rows, and write the cache file where it is far behind. Raises StorageError, CorruptionError."""
        self._feed.advance(stopped)
        if self.rows - self._kept >= behind(self.rows):
            self.keep()

    def keep(self) -> None:
        """Write the cache file now, if the folder allows it."""
        cache.save(self.run, self._view, self._folded, self.rows)
        self._kept = self.rows

    def read(self) -> Account:
        """Return the account by now. Raises RunDirectoryError, StorageError, CorruptionError."""
        self.advance()
        found, end = self._folded, self._folded.timeline.end
        newest, version, simulation = found.newest, found.version, self.run.simulation
        if simulation is not None and not self._run_file:
            self._run_file = kept(load(self.run.run_file))  # no row of a simulation's has it
        run_file = newest.run_file or self._run_file
        measures = simulation is None or simulation.real  # a loss of work that is only costed means nothing
        moved = notes.Traffic(simulation.bytes_up, simulation.bytes_down) if simulation else notes.Traffic(0, 0)
        return Account(
            run=self.run,
            totals=found.tallies.totals(len(found.timeline.spans), found.timeline.seconds),
            nodes=found.tallies.each(),
            losses=list(found.losses.points) if measures else [],
            refusals=found.tallies.refused(),
            traffic=newest.traffic or moved,
            happenings=[one for one in found.chronicle.happenings if measures or one.kind != EVALUATED],
            finished=newest.finished or (simulation.end if simulation else ""),
            end=end,
            merging=replace(
                merging(version.nodes(self._view), version.excluded, newest.buffer_size, run_file),
                made=version.made,
                pauses=newest.pauses,
                gathered=len({pending.node for pending in found.tallies.pending.values()}),
            ),
            dispatch=Dispatched(
                matching=found.matchings.until(end),
                market=market_of(self.run, found.matchings, run_file),
                employed=newest.employed,
                error=found.foreseen.hindsight.error,
                within=found.foreseen.hindsight.within,
                foreseen=len(found.foreseen.hindsight.errors),
                doubts=found.doubts.at(end),
                privacy=SpentBudget(newest.budget, newest.spent),
                overhead=found.overheads.median,
            ),
            measurements=measurements(found.metrics, found.losses.points, run_file),
        )


def behind(rows: int) -> int:
    """Return how many rows a cache file may be behind a ledger of `rows`: those that a reader folds at once."""
    return max(LEAST_KEPT, rows // 100)


def read(run: RunDirectory) -> Account:
    """Read the account of `run`, whether it works now or not.

    Raises RunDirectoryError, StorageError.
    """
    with AccountReader(run) as reader:
        return reader.read()


def assignments(run: RunDirectory) -> list[AssignmentRow]:
    """Return every assignment of `run` with its outcome."""
    with LedgerView(run.ledger) as view:
        return view.assignments()


def manifest(run: RunDirectory) -> Manifest:
    """Return the run's description of the model for workers.

    Raises RunDirectoryError when it was never prepared.
    """
    path = run.path / MANIFEST
    try:
        with path.open("rb") as file:
            return Manifest.decode(file.read(MANIFEST_LIMIT))
    except OSError as error:
        raise RunDirectoryError(
            f"{path} cannot be read ({error.strerror}): the run ended before it was prepared; start it again"
        ) from None
