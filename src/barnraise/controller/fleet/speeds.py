"""How fast the nodes are: what the controller has observed, and what it makes of a claim until then.

Only what was observed moves others: how long it took from a task to its contribution, and how many tokens that was
good for. Medians over nodes count owners (`trust.owners`). A node that has handed in nothing yet is taken at its word
within what the others were seen to do, once most of them were seen, and counts as long as its first task is not
overdue. So a claim moves nobody's shares, bounds, or rounds by more than an honest node of that sort would, and not for
longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from barnraise.controller.fleet.backoff import Backoff
from barnraise.controller.fleet.uploads import Uploads
from barnraise.controller.state.part import Context, Part
from barnraise.controller.state.state import NodeState
from barnraise.ledger.decisions import Change, Decision, Judged, NodeChanged
from barnraise.trust.owners import median, share

OVERDUE = 3.0
"""How many times longer than usual a node may take for a contribution before the others do not count on it."""

LEAST_PATIENCE = 10.0
"""Seconds that are never too long."""

SPREAD = 100.0
"""A node counts as at most this many times faster than the median, and so does a claim when nothing was observed."""

MOST_SEEN = 0.5
"""Part of the living that must have handed in something before others' claims are held to what these were seen to do:
those who are seen first are not the fleet."""

LEAST_SHARE = 0.5
"""What of an equal share of all work a contribution's share is at least, however much of it others say that they do."""

FEW = 4
"""Contributions of a node that say little of how many of its tasks are in flight."""

CAUTION = 2.0
"""Mean deviations by which a contribution is expected to be later than usual."""


class Speeds(Part):
    """The fleet's figures, as they were found last; rates are tokens a second."""

    def __init__(self, context: Context, uploads: Uploads, backoff: Backoff) -> None:
        super().__init__(context)
        self.uploads, self.backoff = uploads, backoff
        self.tokens = context.settings.tasks.tokens
        self.news = 0  # joins, departures and verdicts so far: each changes a rate or who is alive
        self.at, self.stale_at = -1, -math.inf  # the news behind the figures, and when they are found anew without any
        self.count = 0  # how often they were found by now
        self.counted: list[NodeState] = []  # on whose next contributions the others count
        self.usual_period = 0.0  # median seconds from one of their contributions to the next
        self.num_keeping_pace = 0  # of those that are nearly as fast as the median one
        self.median = self.total = 0.0  # of their rates
        self.middle = 0.0  # the median of all living nodes' rates, as they say where nothing was seen
        self.lowest = self.highest = 0.0  # within which a claim is believed
        self.turnaround = 0.0  # median seconds from a task to its contribution
        self.usual_staleness = 0.0  # of the median node
        self.travel = 0.0  # learning rate times steps of a task, of the median node

    def _changed(self, d: NodeChanged) -> None:
        self.news += d.change != Change.ENROLLED

    def _judged(self, d: Judged) -> None:
        self.news += 1

    def refresh(self) -> None:
        """Find the figures anew, after news of a quarter of the living, or when a task's time has passed."""
        if self.at >= 0 and self.now < self.stale_at and self.news - self.at < max(1, self.state.num_live // 4):
            return
        self.at, self.count = self.news, self.count + 1
        living = [node for node in self.state.nodes.values() if node.live]
        seen = [node for node in living if node.speed.rate > 0.0]
        self.turnaround = median((node.owner, node.speed.turnaround) for node in seen)
        self.stale_at = self.now + max(LEAST_PATIENCE / 2, self.turnaround)
        told = [(node.owner, node.speed.rate or node.session.profile.tokens_per_second) for node in living]
        self.middle = _middle(told)
        rates = [node.speed.rate for node in seen]
        most = share((node.owner for node in seen), (node.owner for node in living)) >= MOST_SEEN
        self.lowest = min(rates) if most and rates else self.middle / SPREAD
        self.highest = max(rates) if most and rates else self.middle * SPREAD
        self.counted = [node for node in living if self._counts(node)]
        working = [node for node in self.counted if node.open or node.speed.rate > 0.0]
        self.median = _middle((node.owner, self.known(node)) for node in working)
        periods = [(node.owner, self.period(node), node.speed.rate > 0.0) for node in self.counted]
        self.usual_period = _middle((owner, period) for owner, period, _ in periods)
        usual = _middle((owner, period) for owner, period, seen_once in periods if seen_once)
        self.num_keeping_pace = sum(not seen_once or period <= OVERDUE * usual for _, period, seen_once in periods)
        self.total = sum(min(self.known(node), SPREAD * self.median) for node in working)
        self.travel = _middle((node.owner, node.updates.travel) for node in living)
        self.usual_staleness = median((node.owner, float(node.updates.staleness)) for node in seen)

    def estimate(self, node: NodeState) -> float:
        """The node's tokens a second; 0 while nothing is known."""
        self.refresh()
        return self.known(node)

    def usable(self, node: NodeState) -> float:
        """The same, as it weighs against others."""
        rate = self.estimate(node)
        return min(rate, SPREAD * self.median) if self.median else rate

    def relative(self, node: NodeState) -> float:
        """The node's rate over the median (1 while nothing is known)."""
        rate = self.estimate(node)
        return rate / self.median if rate > 0.0 and self.median > 0.0 else 1.0

    def period(self, node: NodeState) -> float:
        """Seconds from one contribution of the node to the next; 0 while nothing is known."""
        if node.speed.rate > 0.0:
            return node.speed.tokens / node.speed.rate
        rate = self.known(node)
        return self.tokens / rate if rate > 0.0 else 0.0

    def known(self, node: NodeState) -> float:
        """`estimate`, of the fleet as it was seen last."""
        rate = node.speed.rate
        if rate > 0.0:
            return rate
        claim = node.session.profile.tokens_per_second
        return min(max(claim, self.lowest), self.highest) if claim > 0.0 else 0.0

    def participation(self, node: NodeState, alike: bool = False) -> float:
        """The node's share of the work that the living do: what one of its contributions should weigh. `alike`: one of
        their number, as all contributions are scaled to equal work.

        Without it n workers that each contribute a whole update from the same base would move the model n times as far
        as their mean (SparseLoCo divides by all peers for the same reason, not by those that contributed).

        No less than LEAST_SHARE of what it is by number: what others claim to have done takes no more from it.
        """
        if self.num_working <= 1:
            return 1.0
        own = self.usable(node)
        if alike or own <= 0.0 or self.total <= 0.0:
            return 1.0 / self.num_working
        least = LEAST_SHARE / len(self.counted) if self.counted else 0.0
        return max(own / max(own, self.total), least)

    @property
    def num_working(self) -> int:
        """The living but for those that get no tasks."""
        return self.state.num_live - self.backoff.num_held

    def _counts(self, node: NodeState) -> bool:
        """Whether the others count on the node's next contribution: it is on its way, or not overdue yet."""
        if node.id in self.uploads.sending or node.id in self.uploads.offered:
            return True
        if self.backoff.held(node.id):
            return False
        works = self.state.works
        since = works[node.open[0]].time if node.open else max(node.session.joined, node.speed.verdict_time)
        usual = node.speed.turnaround if node.speed.rate > 0.0 else max(self.turnaround, self.period(node))
        return self.now <= since + max(LEAST_PATIENCE, OVERDUE * usual)

    def sees(self) -> dict[type[Decision], Callable[[Any], None]]:
        return {NodeChanged: self._changed, Judged: self._judged}


def _middle(found: Iterable[tuple[str, float]]) -> float:
    """The median of what is known: of what is above 0; 0 where nothing is."""
    return median((owner, value) for owner, value in found if value > 0.0)


def delay(node: NodeState, first: float) -> float:
    """How many of its periods pass from a task to its contribution; at least `first` before several were seen, as the
    first one of all is behind none.

    More than one where exchanges overlap with work. As with a retransmission timeout (Jacobson 1988), the mean and some
    of its spread: links are not steady.
    """
    if node.speed.rate <= 0.0:
        return first
    least = first if node.tally.accepted + node.tally.refused < FEW else 1.0
    return max(least, (node.speed.turnaround + CAUTION * node.speed.spread) * node.speed.rate / node.speed.tokens)
