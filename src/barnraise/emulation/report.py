"""What a simulation found, as plain values."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from barnraise.emulation.simulator import Point, Simulator

if TYPE_CHECKING:
    from barnraise.data.sat_evaluation import SatScores


@dataclass(frozen=True)
class Report:
    """The outcome of one simulated run.

    `ledger_hash` covers every decision, so equal hashes are equal histories. `acceptance_rate` is accepted over
    accepted and refused, None before the first verdict; staleness is that of accepted contributions. `utilisation` is
    training that entered the model over the time nodes were up. Bytes are those on the nodes' links. Losses are
    held-out, in nats a token, None where work was only costed; `curve` has all evaluations, and `sat` what a model
    that was trained on satisfiability solves at the end. `seconds` is how long the
    simulation took, `first_task_seconds` the virtual time at which the first node had its model, work and rows,
    `joining_bytes` what had gone down by then.
    """

    ledger_hash: str
    end: str
    nodes: int
    versions: int
    tokens: int
    accepted: int
    refused: int
    discarded: int
    acceptance_rate: float | None
    staleness_mean: float
    staleness_max: int
    utilisation: float
    bytes_up: int
    bytes_down: int
    first_loss: float | None
    final_loss: float | None
    virtual_seconds: float
    seconds: float
    events: int
    first_task_seconds: float | None
    joining_bytes: int
    curve: tuple[Point, ...]
    sat: SatScores | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def report(
    simulator: Simulator,
    seconds: float,
    *,
    losses: tuple[float, float] | None = None,
    sat: SatScores | None = None,
) -> Report:
    """The report of a run that has been played in `seconds`; `losses` are the first and the last."""
    state = simulator.controller.state
    judged = state.totals.accepted + state.totals.refused
    first, last = losses or (None, None)
    first_task, joining_bytes = simulator.first_task
    return Report(
        ledger_hash=simulator.ledger_hash.hexdigest(),
        end=simulator.end,
        nodes=len(simulator.nodes),
        versions=state.newest.version,
        tokens=state.totals.tokens,
        accepted=state.totals.accepted,
        refused=state.totals.refused,
        discarded=state.totals.discarded,
        acceptance_rate=state.totals.accepted / judged if judged else None,
        staleness_mean=state.totals.staleness / state.totals.accepted if state.totals.accepted else 0.0,
        staleness_max=simulator.max_staleness,
        utilisation=simulator.utilisation(),
        bytes_up=simulator.bytes_up,
        bytes_down=simulator.bytes_down,
        first_loss=first,
        final_loss=last,
        virtual_seconds=simulator.now,
        seconds=seconds,
        events=simulator.events,
        first_task_seconds=first_task if first_task < math.inf else None,
        joining_bytes=joining_bytes,
        curve=tuple(simulator.curve) if losses else (),
        sat=sat,
    )
