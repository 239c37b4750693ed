"""What is known of the nodes' speeds, and what follows from it: weight in a version, local steps, learning rate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple

from barnraise.controller import speeds
from barnraise.controller.settings import EngineSettings
from barnraise.controller.soft import Soft
from barnraise.controller.state import NodeState, State
from barnraise.core.types import LinkReport
from barnraise.ledger import notes
from barnraise.ledger.decisions import Noted
from barnraise.training import pace
from barnraise.training.tuning import Measured, Tuned, tune


def participation(state: State, soft: Soft, node: NodeState, alike: bool = False) -> float:
    """The node's share of the work that the living do: what one of its contributions should weigh. `alike`: one of
    their number, as all contributions are scaled to equal work.

    Without it n workers that each contribute a whole update from the same base would move the model n times as far as
    their mean (SparseLoCo divides by all peers for the same reason, not by those that contributed).
    """
    if state.num_live <= 1:
        return 1.0
    own = speeds.usable(state, soft, node)
    if alike or own <= 0.0 or soft.speeds.total <= 0.0:
        return 1.0 / state.num_live
    return own / max(own, soft.speeds.total)


def local_steps(state: State, soft: Soft, settings: EngineSettings, node: NodeState) -> int:
    """How many steps the node's next task takes: as its speed says, and more where it is ahead of the others."""
    steps = _own_steps(state, soft, settings, node)
    if not settings.worker.overlap or node.rate <= 0.0:
        return steps
    most = max(steps, settings.max_local_steps)
    return min(most, pace.aligned_steps(steps, settings.batch_size * settings.context / node.rate, node.waited))


def _own_steps(state: State, soft: Soft, settings: EngineSettings, node: NodeState) -> int:
    if settings.pace == "fixed" or speeds.estimate(state, soft, node) <= 0.0:
        return settings.local_steps
    speed, length = _speed(node, soft, settings), _round_seconds(state, soft, settings)
    if settings.pace == "literal":
        computing = length - speed.exchange
        return pace.literal_steps(node.step_seconds, settings.local_steps, settings.max_local_steps, computing)
    return pace.local_steps(speed, length, settings.max_local_steps)


def _round_seconds(state: State, soft: Soft, settings: EngineSettings) -> float:
    """The length of a round at the fleet's pace; computed anew with the rates."""
    speeds.refresh(state, soft)
    if soft.speeds.count != soft.paced_at:
        fleet = [_speed(other, soft, settings) for other in soft.speeds.counted if other.rate > 0.0]
        soft.round_seconds, soft.paced_at = pace.round_seconds(fleet, settings.local_steps), soft.speeds.count
    return soft.round_seconds


def rate_factor(
    state: State, soft: Soft, settings: EngineSettings, node: NodeState, steps: int, num_rows: float
) -> float:
    """The share of the learning rate at which the node takes `steps` steps with so many rows.

    What counts is by how much the node's work is staler than the median node's, so that the run file's rate is that of
    a usual node.
    """
    if settings.pace == "fixed":
        return 1.0
    length = _round_seconds(state, soft, settings)
    staleness = max(0.0, node.last_staleness - soft.speeds.usual_staleness)
    batch_ratio = num_rows / (steps * settings.batch_size)
    if settings.pace == "matched" and speeds.estimate(state, soft, node) > 0.0:
        steps += pace.hindered_steps(_speed(node, soft, settings), length, settings.max_local_steps)
    adam = settings.worker.inner_optimizer == "adamw"
    return pace.rate_factor(steps, settings.local_steps, staleness, batch_ratio, adam=adam)


def tuned(state: State, soft: Soft, settings: EngineSettings, node: NodeState, now: float) -> Iterator[Noted]:
    """Fit the node's payloads and steps to what it last measured of its link; a change is on the ledger."""
    link = soft.links.get(node.id)
    rate = speeds.estimate(state, soft, node)
    if not settings.tune or link is None or rate <= 0.0:
        return
    round_trip = min(link.round_trip, node.turnaround) if node.turnaround else link.round_trip
    measured = Measured(settings.batch_size * settings.context / rate, round_trip, link.up, link.down)
    least = max(node.least_steps, settings.local_steps)
    now_at, parts = Tuned(node.rung, least, node.partition), settings.parts
    versions = max(1.0, state.num_live / max(1, state.buffer_size))  # that are made while it trains a task
    down = min(round(versions * settings.update_bytes), settings.snapshot_bytes)
    found = tune(measured, now_at, settings.rungs, down, settings.local_steps, settings.max_local_steps, parts)
    if found != now_at:
        sent = settings.rungs[found.rung] // parts[found.partition]
        note = notes.Tuned(found.rung, found.steps, found.partition, sent, *astuple(measured))
        yield Noted(now, note, node.id)


def _speed(node: NodeState, soft: Soft, settings: EngineSettings) -> pace.Speed:
    """What the node says of its link counts as far as its contributions were seen to take so long."""
    link = soft.links.get(node.id, LinkReport())
    sent = settings.rungs[node.rung] / settings.parts[node.partition]
    exchange = min(link.round_trip + (sent / link.up if link.up else 0.0), node.turnaround)
    return pace.Speed(settings.batch_size * settings.context / speeds.known(soft, node), exchange)
