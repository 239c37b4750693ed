"""Estimates of a node from its verdicts: its speed, the time of its tasks, the length of its updates."""

from __future__ import annotations

from barnraise.controller.state.state import NodeState, Work
from barnraise.core.types import FASTEST, SLOWEST
from barnraise.ledger.decisions import Judged

RATE_SMOOTHING = 0.3
"""Weight of the newest observation in the EWMAs of a node's tokens and seconds."""

REMEMBERED_TIMES = 8
"""Step times of a node that the literal pace uses."""


def observe_rate(node: NodeState, work: Work, d: Judged) -> None:
    """Smooth tokens and seconds separately, so that two contributions at once after an outage show no high speed.

    A refused one shows no speed either, but it may show slowness.
    """
    speed = node.speed
    elapsed = max(1e-9, d.time - max(work.time, speed.verdict_time))
    tokens = d.tokens if d.verdict == "accepted" else work.tokens
    if d.verdict == "accepted" or tokens < speed.rate * elapsed or not speed.rate:
        share = RATE_SMOOTHING if speed.rate else 1.0
        speed.tokens += share * (tokens - speed.tokens)
        speed.seconds += share * (elapsed - speed.seconds)
        late = max(0.0, d.time - work.time) - speed.turnaround
        speed.spread += share * ((abs(late) if speed.rate else 0.0) - speed.spread)
        speed.turnaround += share * late
        speed.rate = bounded(speed.tokens / speed.seconds)
        speed.step_seconds = [*speed.step_seconds[1 - REMEMBERED_TIMES :], elapsed / max(1, d.claim.steps)]
    speed.verdict_time = d.time


def learn(node: NodeState, work: Work, d: Judged) -> None:
    """Update the node's expected times from a task's time.

    A refused one shows no speed, nor does repeated work, as deltas were fetched first, and a finding that overtakes a
    payload shows nothing: its start is not known.
    """
    learned, times, task = node.speed.learned, work.expected, work.task
    if not task.contributes and node.open and min(node.open) < d.assignment:
        return
    effort = task.toll * (work.credit(d.claim.steps) if d.verdict == "accepted" else work.tokens)
    slow = (
        d.verdict == "refused"
        and times.computed(work.time, learned.free, d.time) > learned.compute(work.sort, effort) > 0.0
    )
    if not (task.trains or task.measures or task.contributes):
        learned.free = d.time
    elif d.verdict == "accepted" or slow:
        learned.observed(work.sort, effort, times, work.time, d.time)
    else:
        learned.free = d.time


def observe_travel(node: NodeState, work: Work) -> None:
    """Smooth the learning rate times the steps of the node's tasks, as they were assigned."""
    if work.task.trains:
        share = RATE_SMOOTHING if node.updates.travel else 1.0
        node.updates.travel += share * (work.terms.learning_rate * work.local_steps - node.updates.travel)


def bounded(rate: float) -> float:
    """Return a rate to compute with; 0, not known, for invalid ones."""
    return min(max(rate, SLOWEST), FASTEST) if rate > 0.0 else 0.0
