"""The results of a simulation, as plain values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from barnraise.account.hindsight import Hindsight
from barnraise.account.market import MarketStatus
from barnraise.account.matched import Matching, Matchings, as_figures
from barnraise.account.scores import as_json
from barnraise.emulation.simulator import Point, Simulator
from barnraise.ledger.decisions import Decision, Noted

if TYPE_CHECKING:
    from barnraise.data.sat.scores import SatScores
    from barnraise.emulation.attacks.base import Target


@dataclass(frozen=True)
class Verdicts:
    """The verdicts on contributions.

    `acceptance_rate` is accepted over accepted and refused, None before the first; staleness is that of the accepted,
    of which `signed` are signed. `convicted` are the nodes that audits or scores found guilty.
    """

    accepted: int
    refused: int
    discarded: int
    acceptance_rate: float | None
    staleness_mean: float
    staleness_max: int
    signed: int
    convicted: tuple[str, ...]


@dataclass(frozen=True)
class SimulatedTraffic:
    """Bytes on the nodes' links; `joining_bytes` went down before the first node had its model, work and rows."""

    bytes_up: int
    bytes_down: int
    joining_bytes: int


@dataclass(frozen=True)
class Losses:
    """Held-out losses in nats a token, None where work was only costed.

    `curve` has all evaluations, and `targets` how near the last version is to the targets of attackers, by their names
    (None: there are none).
    """

    first_loss: float | None
    final_loss: float | None
    curve: tuple[Point, ...]
    targets: Mapping[str, Target] | None


@dataclass(frozen=True)
class Duration:
    """Durations of the run in virtual time, and of the simulation.

    `first_task_seconds` is the virtual time at which the first node had its model, work and rows.
    """

    virtual_seconds: float
    first_task_seconds: float | None
    seconds: float
    events: int


@dataclass(frozen=True)
class SimulatedMatching:
    """The matching of tasks and nodes.

    How many nodes were given a training task, and how many have one in the model; the median relative error of expected
    task times, once a node had done ten (None: none had), and the share of these that were within the expected standard
    deviation, with their number; the share of the nodes' time without a task; that of the tasks that were given back,
    lost or refused; how stable the matching was (None: none stood, or not for a minute), and why none stands at the
    end.
    """

    served: int
    contributors: int
    prediction_error: float | None
    predicted_within: float | None
    predictions: int
    idle: float
    conflicts: float
    matching: Matching | None
    no_market: str


@dataclass(frozen=True)
class Report:
    """The outcome of one simulated run.

    `ledger_hash` covers every decision, so equal hashes are equal histories. `utilisation` is training that entered the
    model over the time nodes were up, and `sat` the final score of a model that was trained on satisfiability.
    """

    ledger_hash: str
    end: str
    nodes: int
    versions: int
    tokens: int
    utilisation: float
    verdicts: Verdicts
    traffic: SimulatedTraffic
    losses: Losses
    duration: Duration
    dispatch: SimulatedMatching
    sat: SatScores | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return all figures in one mapping, as `simulate --json` prints them."""
        found = asdict(self)
        for group in ("verdicts", "traffic", "losses", "duration", "dispatch"):
            found |= found.pop(group)
        del found["matching"]
        if self.sat is not None:
            found["sat"] = as_json(self.sat)
        return found | as_figures(self.dispatch.matching)


class Readings:
    """The report's readings of a simulated run's decisions: the accuracy of expected times, and the market."""

    def __init__(self) -> None:
        self.hindsight, self.matchings = Hindsight(), Matchings()

    def observe(self, now: float, decision: Decision) -> None:
        """Observe the simulator's decisions (`Simulator.observers`)."""
        self.hindsight.add(decision)
        if type(decision) is Noted:
            self.matchings.note(decision)

    def no_market(self, market: MarketStatus) -> str:
        """Return why no market stands at the end, empty if one does; before a note of it, by `market`."""
        if self.matchings.newest is None and not self.matchings.absent and not market.stands:
            return market.why
        return self.matchings.absent


def report(
    simulator: Simulator,
    readings: Readings,
    seconds: float,
    *,
    market: MarketStatus,
    losses: tuple[float, float] | None = None,
    targets: Mapping[str, Target] | None = None,
    sat: SatScores | None = None,
) -> Report:
    """Return the report of a run that was simulated in `seconds`; `losses` are the first and the last."""
    state = simulator.controller.state
    judged = state.totals.accepted + state.totals.refused
    first, last = losses or (None, None)
    first_task, joining_bytes = simulator.first_task
    seen, tally = readings.hindsight, simulator.controller.snapshot(simulator.now).utilisation
    return Report(
        ledger_hash=simulator.ledger_hash.hexdigest(),
        end=simulator.end,
        nodes=len(simulator.nodes),
        versions=state.newest.version,
        tokens=state.totals.tokens,
        utilisation=simulator.utilisation(),
        verdicts=Verdicts(
            accepted=state.totals.accepted,
            refused=state.totals.refused,
            discarded=state.totals.discarded,
            acceptance_rate=state.totals.accepted / judged if judged else None,
            staleness_mean=state.totals.staleness / state.totals.accepted if state.totals.accepted else 0.0,
            staleness_max=simulator.max_staleness,
            signed=sum(node.tally.accepted for node in state.nodes.values() if node.badge.signer),
            convicted=tuple(node.id for node in state.nodes.values() if node.tally.reputation.convicted),
        ),
        traffic=SimulatedTraffic(simulator.bytes_up, simulator.bytes_down, joining_bytes),
        losses=Losses(first, last, tuple(simulator.curve) if losses else (), targets),
        duration=Duration(
            virtual_seconds=simulator.now,
            first_task_seconds=first_task if first_task < math.inf else None,
            seconds=seconds,
            events=simulator.events,
        ),
        dispatch=SimulatedMatching(
            served=sum(node.tally.turns > 0 for node in state.nodes.values()),
            contributors=sum(node.tally.accepted > 0 for node in state.nodes.values()),
            prediction_error=seen.error,
            predicted_within=seen.within,
            predictions=len(seen.errors),
            idle=tally.idle,
            conflicts=tally.conflicts,
            matching=readings.matchings.until(simulator.now),
            no_market=readings.no_market(market),
        ),
        sat=sat,
    )
