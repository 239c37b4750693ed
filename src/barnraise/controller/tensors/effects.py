"""The implementations of the controller's effects, for its shell and for a simulation with real tensors.

Each is a function of the tensors and the effect. Called where effects are handed over, it fixes what must not move
meanwhile, and returns the work, which a thread then does. `state/effects.py` has the effects and their threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from torch import Tensor

from barnraise.controller.state.effects import (
    Aggregate,
    Aggregated,
    ControllerEffect,
    Evaluate,
    Evaluated,
    Gate,
    Gated,
    ListMembers,
    Measure,
    Measured,
    Score,
    Scored,
    Unmade,
)
from barnraise.controller.state.events import Event
from barnraise.controller.tensors.blobs import BlobStore
from barnraise.controller.tensors.evaluator import Evaluator
from barnraise.controller.tensors.measurer import Measurer
from barnraise.controller.tensors.parameter_server import Made, ParameterServer
from barnraise.controller.tensors.scorer import Scorer
from barnraise.controller.tensors.stages.base import Step
from barnraise.controller.tensors.weigher import Weigher
from barnraise.core.errors import CorruptionError, ProblemError, VersionRefusedError
from barnraise.data.shards import Dataset
from barnraise.training.metrics.generation import Stopped
from barnraise.wire.frames import Buffer

Found = TypeVar("Found")
Work: TypeAlias = Callable[[], Event]

EPOCH_OVER = 0
"""The epoch of an answer that no controller awaits: theirs begin at 1."""


@dataclass(frozen=True)
class Tensors:
    """The tensors and files that effects work on.

    `measurer` is there where the run has metrics or samples. `read` returns the payload of a durable contribution, or
    raises CorruptionError. `rows_of` returns a node's rows. `between_versions` has a function called between two
    versions, and returns how to get its result.
    """

    server: ParameterServer
    blobs: BlobStore
    evaluator: Evaluator
    measurer: Measurer | None
    scorer: Scorer
    weigher: Weigher
    read: Callable[[int], Buffer]
    rows_of: Callable[[str], Dataset]
    between_versions: Callable[[Callable[[], Any]], Callable[[], Any]]


def at_once(look: Callable[[], Found]) -> Callable[[], Found]:
    """Return how to get the result of `look`, which is called now: for a single thread."""
    found = look()
    return lambda: found


def carry_out(tensors: Tensors, effect: ControllerEffect) -> Work:
    """Return the work of an effect."""
    return EFFECTS[type(effect)](tensors, effect)


def _gate(tensors: Tensors, effect: Gate) -> Work:
    """Measure the loss gate; the version before stays the newest, so its parameters do not change."""

    def work() -> Event:
        try:
            nodes, gain = tensors.weigher.excluded(tensors.server, effect, tensors.read)
        except ProblemError:  # as in a run without the gate
            nodes, gain = (), 0.0
        return Gated(effect.epoch, effect.version, nodes, gain)

    return work


def _aggregate(tensors: Tensors, effect: Aggregate) -> Work:
    server, blobs = tensors.server, tensors.blobs

    def work() -> Event:
        blobs.freeze(server.watch)
        try:
            given = effect.slots, tensors.read, effect.rate, effect.scales
            made = server.aggregate(effect.version, *given, masks=effect.masks)
        except VersionRefusedError as refusal:
            return Unmade(effect.epoch, effect.version, refusal.void, refusal.lost, refusal.reason)
        finally:
            blobs.publish(server.parameters, server.digest, server.leaves)
        blobs.add_delta(made.delta.digest, made.delta_bytes)
        return Aggregated(effect.epoch, made.version, made.digest, made.delta, made.parameters, dict(made.left_out))

    return work


def _list_members(tensors: Tensors, effect: ListMembers) -> Work:
    unmasker = tensors.server.unmasker
    assert unmasker is not None, "a masked run has one"

    def work() -> Event:
        return unmasker.listed(effect, tensors.read)

    return work


def _evaluate(tensors: Tensors, effect: Evaluate) -> Work:
    """Measure the newest version (or the average up to it), which is the requested one or a little younger.

    The controller cannot measure an encrypted version: it answers that there is no loss.
    """
    if tensors.server.adder is not None:
        return lambda: Evaluated(effect.epoch, tensors.server.version, math.nan)

    def newest() -> tuple[int, Any]:
        return tensors.server.version, tensors.evaluator.model_of(tensors.server.average)

    def work() -> Event:
        tensors.evaluator.build()  # it takes seconds, which versions need not wait for
        version, model = tensors.between_versions(newest)()
        return Evaluated(effect.epoch, version, tensors.evaluator.loss(model))

    return work


def _measure(tensors: Tensors, effect: Measure) -> Work:
    """Measure the newest version (or the average up to it), as `_evaluate` does."""
    measurer = tensors.measurer
    assert measurer is not None, "a run with metrics has one"

    def newest() -> tuple[int, Any]:
        return tensors.server.version, measurer.enter(tensors.server.average)

    def work() -> Event:
        measurer.build()
        version, module = tensors.between_versions(newest)()
        try:
            found = measurer.measure(module)
        except Stopped:
            return Measured(EPOCH_OVER, version)
        return Measured(effect.epoch, version, found.values, found.samples, found.failures)

    return work


def _score(tensors: Tensors, effect: Score) -> Work:
    """Score at the present newest version, though others may be made until the model is free.

    A version that holds the contribution shows less of its effect.
    """
    server, made = tensors.server, effect.contribution

    def newest() -> tuple[int, Tensor, Made | None]:
        return server.version, server.parameters.clone(), server.made

    now = tensors.between_versions(newest)

    def work() -> Event:
        version, parameters, last = now()
        try:
            update = server.reader(tensors.read(made.assignment), made)
        except CorruptionError:  # its version will report it
            return Scored(effect.epoch, made.assignment)
        usual = server.movement(last) if last is not None else None
        step = Step(update, made.parameters)
        try:
            gains = tensors.scorer.gains(parameters, step, usual, effect, tensors.rows_of(effect.node))
        except ProblemError:  # a problem whose code raises says nothing of the node
            gains = None
        return Scored(effect.epoch, made.assignment, version, gains)

    return work


EFFECTS: Mapping[type[ControllerEffect], Callable[[Tensors, Any], Work]] = {
    Gate: _gate,
    Aggregate: _aggregate,
    ListMembers: _list_members,
    Evaluate: _evaluate,
    Measure: _measure,
    Score: _score,
}
"""The implementation of each effect that needs the tensors alone."""
