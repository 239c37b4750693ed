"""How fast the nodes are: what the controller has observed, and what it makes of a claim until then.

Only what was observed moves others: how long it took from a task to its contribution, and how many tokens that was
good for. A node that has handed in nothing yet is taken at its word within what the others were seen to do, and counts
as long as its first task is not overdue. So a claim moves nobody's shares, bounds, or rounds by more than an honest
node of that sort would, and not for longer.
"""

from __future__ import annotations

from statistics import median

from barnraise.controller.soft import Soft
from barnraise.controller.state import NodeState, State

OVERDUE = 3.0
"""How many times longer than usual a node may take for a contribution before the others do not count on it."""

LEAST_PATIENCE = 10.0
"""Seconds that are never too long."""

SPREAD = 100.0
"""A node counts as at most this many times faster than the median, and so does a claim when nothing was observed."""

FEW = 4
"""Contributions of a node that say little of how many of its tasks are in flight."""

CAUTION = 2.0
"""Mean deviations by which a contribution is expected to be later than usual."""


def refresh(state: State, soft: Soft) -> None:
    """Compute the fleet's figures anew, after news of a quarter of the living, or when a task's time has passed."""
    speeds, patience = soft.speeds, max(LEAST_PATIENCE / 2, soft.speeds.turnaround)
    fresh = speeds.at >= 0 and soft.news - speeds.at < max(1, state.num_live // 4) and soft.now < speeds.time + patience
    if fresh:
        return
    speeds.at, speeds.time, speeds.count = soft.news, soft.now, speeds.count + 1
    living = [node for node in state.nodes.values() if node.live]
    seen = [node for node in living if node.rate > 0.0]
    speeds.turnaround = median(node.turnaround for node in seen) if seen else 0.0
    rates = [node.rate for node in seen] or [node.profile.tokens_per_second for node in living]
    middle = median(rates) if rates else 0.0
    speeds.lowest = min(rates) if seen else middle / SPREAD
    speeds.highest = max(rates) if seen else middle * SPREAD
    speeds.counted = [node for node in living if _counts(state, soft, node)]
    working = [known(soft, node) for node in speeds.counted if node.open or node.rate > 0.0]
    working = [rate for rate in working if rate > 0.0]
    speeds.median = median(working) if working else 0.0
    speeds.total = sum(min(rate, SPREAD * speeds.median) for rate in working)
    norms = [node.norm for node in living if node.norm > 0.0]
    speeds.num_norms, speeds.norm = len(norms), median(norms) if norms else 0.0
    speeds.travel = median(node.travel for node in living if node.norm > 0.0) if norms else 0.0
    speeds.usual_staleness = median(node.last_staleness for node in seen) if seen else 0.0


def estimate(state: State, soft: Soft, node: NodeState) -> float:
    """The node's tokens a second; 0 while nothing is known."""
    refresh(state, soft)
    return known(soft, node)


def usable(state: State, soft: Soft, node: NodeState) -> float:
    """The same, as it weighs against others."""
    rate = estimate(state, soft, node)
    return min(rate, SPREAD * soft.speeds.median) if soft.speeds.median else rate


def relative(state: State, soft: Soft, node: NodeState) -> float:
    """The node's rate over the median (1 while nothing is known)."""
    rate = estimate(state, soft, node)
    return rate / soft.speeds.median if rate > 0.0 and soft.speeds.median > 0.0 else 1.0


def period(soft: Soft, node: NodeState) -> float:
    """Seconds from one contribution of the node to the next; 0 while nothing is known."""
    if node.rate > 0.0:
        return node.rate_tokens / node.rate
    rate = known(soft, node)
    return soft.speeds.tokens / rate if rate > 0.0 else 0.0


def delay(node: NodeState, first: float) -> float:
    """How many of its periods pass from a task to its contribution; at least `first` before several were seen, as the
    first one of all is behind none.

    More than one where exchanges overlap with work. As with a retransmission timeout (Jacobson 1988), the mean and some
    of its spread: links are not steady.
    """
    if node.rate <= 0.0:
        return first
    least = first if node.accepted + node.refused < FEW else 1.0
    return max(least, (node.turnaround + CAUTION * node.turnaround_spread) * node.rate / node.rate_tokens)


def known(soft: Soft, node: NodeState) -> float:
    """`estimate`, of the fleet as it was seen last."""
    if node.rate > 0.0:
        return node.rate
    claim = node.profile.tokens_per_second
    return min(max(claim, soft.speeds.lowest), soft.speeds.highest) if claim > 0.0 else 0.0


def _counts(state: State, soft: Soft, node: NodeState) -> bool:
    """Whether the others count on the node's next contribution: it is on its way, or not overdue yet."""
    if node.id in soft.custody.sending or node.id in soft.custody.offered:
        return True
    since = state.works[node.open[0]].time if node.open else max(node.joined, node.last_verdict_time)
    usual = node.turnaround if node.rate > 0.0 else max(soft.speeds.turnaround, period(soft, node))
    return soft.now <= since + max(LEAST_PATIENCE, OVERDUE * usual)
