"""The effects of the controller in a simulation: their virtual seconds, and their answers without tensors.

With real tensors the answers come from `controller/tensors/effects.py`, as outside a simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from barnraise.controller.state.effects import (
    Aggregate,
    Aggregated,
    ControllerEffect,
    Evaluate,
    Evaluated,
    Gains,
    Gate,
    Gated,
    Listed,
    ListMembers,
    Measure,
    Measured,
    Score,
    Scored,
)
from barnraise.controller.state.events import Event
from barnraise.core.types import Blob
from barnraise.emulation.costs import ControllerCosts


class SizedWork(NamedTuple):
    """The controller's work where there are no tensors: the `newest` version, and the bytes of a delta."""

    newest: int
    delta_bytes: int


class SimulatedEffect(NamedTuple):
    """The answer to an effect without tensors, and the seconds of an effect.

    Without tensors contributions are valid and losses are not modelled. The seconds follow from the effect, its answer,
    and the bytes of payloads that are in no version yet, by assignment.
    """

    sized: Callable[[SizedWork, Any], Event]
    seconds: Callable[[ControllerCosts, Any, Any, Mapping[int, int]], float]


def _aggregated(sizes: SizedWork, effect: Aggregate) -> Event:
    delta = Blob(f"d{effect.version:063x}", sizes.delta_bytes)
    return Aggregated(effect.epoch, effect.version, f"e{effect.version:063x}", delta)


def _evaluated(sizes: SizedWork, effect: Evaluate) -> Event:
    return Evaluated(effect.epoch, effect.version, 0.0)


def _measured(sizes: SizedWork, effect: Measure) -> Event:
    return Measured(effect.epoch, effect.version)


def _listed(sizes: SizedWork, effect: ListMembers) -> Event:
    digest = f"f{effect.version:063x}"
    return Listed(effect.epoch, effect.version, digest, b"", tuple(() for _ in effect.committee), 1)


def _gated(sizes: SizedWork, effect: Gate) -> Event:
    return Gated(effect.epoch, effect.version)


def _scored(sizes: SizedWork, effect: Score) -> Event:
    return Scored(effect.epoch, effect.contribution.assignment, sizes.newest, Gains(1.0, 0.0, 1.0))


def _seconds_of_version(
    costs: ControllerCosts, effect: Aggregate, answer: Event, payload_bytes: Mapping[int, int]
) -> float:
    return costs.aggregate(effect, answer.delta, payload_bytes) if isinstance(answer, Aggregated) else 0.0


EFFECTS: Mapping[type[ControllerEffect], SimulatedEffect] = {
    Gate: SimulatedEffect(_gated, lambda costs, effect, *_: costs.gate(effect)),
    ListMembers: SimulatedEffect(_listed, lambda *_: 0.0),
    Aggregate: SimulatedEffect(_aggregated, _seconds_of_version),
    Evaluate: SimulatedEffect(_evaluated, lambda costs, *_: costs.evaluate),
    Measure: SimulatedEffect(_measured, lambda costs, *_: costs.evaluate),
    Score: SimulatedEffect(_scored, lambda costs, *_: costs.score),
}
"""Each effect that needs the tensors alone."""
