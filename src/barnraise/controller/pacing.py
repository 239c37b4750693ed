"""What is known of the nodes' speeds, and what follows from it: weight in a version, local steps, learning rate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from statistics import median

from barnraise.controller.settings import EngineSettings
from barnraise.controller.soft import Soft
from barnraise.controller.state import NodeState, State
from barnraise.core.types import LinkReport
from barnraise.ledger.decisions import Noted
from barnraise.training import pace
from barnraise.training.tuning import Measured, Tuned, tune


def relative_speed(state: State, soft: Soft, node: NodeState) -> float:
    """The node's observed rate over the median of the living (1 while nothing is known)."""
    middle = median_rate(state, soft)
    return node.rate / middle if node.rate > 0.0 and middle > 0.0 else 1.0


def median_rate(state: State, soft: Soft) -> float:
    """Of the living nodes' rates; 0 while none is known."""
    _refresh_rates(state, soft)
    return soft.median_rate


def participation(state: State, soft: Soft, node: NodeState, alike: bool = False) -> float:
    """The node's share of the work that the living do: what one of its contributions should weigh. `alike`: one of
    their number, as all contributions are scaled to equal work.

    Without it n workers that each contribute a whole update from the same base would move the model n times as far as
    their mean (SparseLoCo divides by all peers for the same reason, not by those that contributed).
    """
    _refresh_rates(state, soft)
    if state.num_live <= 1:
        return 1.0
    if alike or node.rate <= 0.0 or soft.total_rate <= 0.0:
        return 1.0 / state.num_live
    return min(1.0, node.rate / soft.total_rate)


def _refresh_rates(state: State, soft: Soft) -> None:
    """Median and sum of the living nodes' rates, computed anew after news of a quarter of the living."""
    if soft.rates_at < 0 or soft.news - soft.rates_at > state.num_live // 4:
        rates = [other.rate for other in state.nodes.values() if other.live and other.rate > 0]
        soft.median_rate, soft.total_rate, soft.rates_at = (median(rates) if rates else 0.0), sum(rates), soft.news
        soft.usual_staleness = median(node.last_staleness for node in state.nodes.values() if node.live) if rates else 0


def local_steps(state: State, soft: Soft, settings: EngineSettings, node: NodeState) -> int:
    """How many steps the node's next task takes: as its speed says, and more where it is ahead of the others."""
    steps = _own_steps(state, soft, settings, node)
    if not settings.worker.overlap or node.rate <= 0.0:
        return steps
    most = max(steps, settings.max_local_steps)
    return min(most, pace.aligned_steps(steps, settings.batch_size * settings.context / node.rate, node.waited))


def _own_steps(state: State, soft: Soft, settings: EngineSettings, node: NodeState) -> int:
    if settings.pace == "fixed" or node.rate <= 0.0:
        return settings.local_steps
    speed, length = _speed(node, soft, settings), _round_seconds(state, soft, settings)
    if settings.pace == "literal":
        computing = length - speed.exchange
        return pace.literal_steps(node.step_seconds, settings.local_steps, settings.max_local_steps, computing)
    return pace.local_steps(speed, length, settings.max_local_steps)


def _round_seconds(state: State, soft: Soft, settings: EngineSettings) -> float:
    """The length of a round at the fleet's pace; computed anew with the rates."""
    _refresh_rates(state, soft)
    if soft.rates_at != soft.paced_at:
        fleet = [_speed(other, soft, settings) for other in state.nodes.values() if other.live and other.rate > 0.0]
        soft.round_seconds, soft.paced_at = pace.round_seconds(fleet, settings.local_steps), soft.rates_at
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
    staleness = max(0.0, node.last_staleness - soft.usual_staleness)
    batch_ratio = num_rows / (steps * settings.batch_size)
    if settings.pace == "matched" and node.rate > 0.0:
        steps += pace.hindered_steps(_speed(node, soft, settings), length, settings.max_local_steps)
    adam = settings.worker.inner_optimizer == "adamw"
    return pace.rate_factor(steps, settings.local_steps, staleness, batch_ratio, adam=adam)


def tuned(state: State, soft: Soft, settings: EngineSettings, node: NodeState, now: float) -> Iterator[Noted]:
    """Fit the node's payloads and steps to what it last measured of its link; a change is on the ledger."""
    link = soft.links.get(node.id)
    if not settings.tune or link is None or node.rate <= 0.0:
        return
    measured = Measured(settings.batch_size * settings.context / node.rate, link.round_trip, link.up, link.down)
    least = max(node.least_steps, settings.local_steps)
    now_at, parts = Tuned(node.rung, least, node.partition), settings.parts
    versions = max(1.0, state.num_live / max(1, state.buffer_size))  # that are made while it trains a task
    down = min(round(versions * settings.update_bytes), settings.snapshot_bytes)
    found = tune(measured, now_at, settings.rungs, down, settings.local_steps, settings.max_local_steps, parts)
    if found != now_at:
        sent = settings.rungs[found.rung] // parts[found.partition]
        detail = {"rung": found.rung, "local_steps": found.steps, "partition": found.partition, "bytes": sent}
        yield Noted(now, "tuned", node.id, detail | asdict(measured))


def _speed(node: NodeState, soft: Soft, settings: EngineSettings) -> pace.Speed:
    link = soft.links.get(node.id, LinkReport())
    sent = settings.rungs[node.rung] / settings.parts[node.partition]
    exchange = link.round_trip + (sent / link.up if link.up else 0.0)
    return pace.Speed(settings.batch_size * settings.context / node.rate, exchange)
