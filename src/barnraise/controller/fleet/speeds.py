"""The speeds of the nodes: the controller's observations, and the treatment of claims until then.

Only observations affect other nodes: the time from a task to its contribution, and its tokens. Medians over nodes count
owners (`trust.owners`). A node without results is believed within the range of the others' observed speeds, once most
of them were observed, and counts as long as its first task is not overdue. So a claim changes others' shares, bounds,
or rounds by no more than an honest node of that kind would, and not for longer.
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
"""Factor over the usual time for a contribution up to which the others count on a node."""

LEAST_PATIENCE = 10.0
"""Seconds that are never too long."""

SPREAD = 100.0
"""A node counts as at most this many times faster than the median, and so does a claim without observations."""

MOST_SEEN = 0.5
"""Share of the living that must have submitted a result before others' claims are limited to the observed range: the
first results are not typical of the fleet."""

LEAST_SHARE = 0.5
"""Share of an equal part of all work that a contribution's share is at least, however much work others claim."""

FEW = 4
"""Contributions of a node that say little about how many of its tasks are in flight."""

CAUTION = 2.0
"""Mean deviations by which a contribution is expected to be later than usual."""


class Speeds(Part):
    """The fleet's figures, as they were found last; rates are tokens a second."""

    def __init__(self, context: Context, uploads: Uploads, backoff: Backoff) -> None:
        super().__init__(context)
        self.uploads, self.backoff = uploads, backoff
        self.tokens = context.settings.tasks.tokens
        self.news = 0  # joins, departures and verdicts so far: each changes a rate or the living
        self.at, self.stale_at = -1, -math.inf  # the news in the figures, and when they expire
        self.count = 0  # how often they were computed
        self.counted: list[NodeState] = []  # nodes on whose next contributions the others count
        self.usual_period = 0.0  # median seconds from one of their contributions to the next
        self.num_keeping_pace = 0  # number of those that are nearly as fast as the median one
        self.median = self.total = 0.0  # median and sum of their rates
        self.middle = 0.0  # the median of all living nodes' rates, by claim where not observed
        self.lowest = self.highest = 0.0  # range within which a claim is believed
        self.turnaround = 0.0  # median seconds from a task to its contribution
        self.usual_staleness = 0.0  # the median node's
        self.travel = 0.0  # learning rate times steps of a task, of the median node

    def _changed(self, d: NodeChanged) -> None:
        self.news += d.change != Change.ENROLLED

    def _judged(self, d: Judged) -> None:
        self.news += 1

    def refresh(self) -> None:
        """Compute the figures again, after news of a quarter of the living, or when a task's time has passed."""
        now, state = self.context.now, self.state
        if self.at >= 0 and now < self.stale_at and self.news - self.at < (state.num_live // 4 or 1):
            return
        self.at, self.count = self.news, self.count + 1
        living = [(node.owner, node) for node in state.nodes.values() if node.live]
        seen = [(owner, node) for owner, node in living if node.speed.rate > 0.0]
        self.turnaround = median([(owner, node.speed.turnaround) for owner, node in seen])
        self.stale_at = now + max(LEAST_PATIENCE / 2, self.turnaround)
        told = [(owner, node.speed.rate or node.session.profile.tokens_per_second) for owner, node in living]
        self.middle = _middle(told)
        rates = [node.speed.rate for _, node in seen]
        most = share([owner for owner, _ in seen], [owner for owner, _ in living]) >= MOST_SEEN
        self.lowest = min(rates) if most and rates else self.middle / SPREAD
        self.highest = max(rates) if most and rates else self.middle * SPREAD
        counted = [(owner, node) for owner, node in living if self._counts(node)]
        self.counted = [node for _, node in counted]
        working = [(owner, self.known(node)) for owner, node in counted if node.open or node.speed.rate > 0.0]
        self.median = _middle(working)
        periods = [(owner, self.period(node), node.speed.rate > 0.0) for owner, node in counted]
        self.usual_period = _middle([(owner, period) for owner, period, _ in periods])
        usual = _middle([(owner, period) for owner, period, seen_once in periods if seen_once])
        latest, most_known = OVERDUE * usual, SPREAD * self.median
        self.num_keeping_pace = sum([not seen_once or period <= latest for _, period, seen_once in periods])
        self.total = sum([min(known, most_known) for _, known in working])
        self.travel = _middle([(owner, node.updates.travel) for owner, node in living])
        self.usual_staleness = median([(owner, float(node.updates.staleness)) for owner, node in seen])

    def estimate(self, node: NodeState) -> float:
        """Return the node's tokens a second; 0 while unknown."""
        self.refresh()
        return self.known(node)

    def usable(self, node: NodeState) -> float:
        """Return the same, limited in its effect on others."""
        rate, most = self.estimate(node), SPREAD * self.median
        return most if 0.0 < most < rate else rate

    def relative(self, node: NodeState) -> float:
        """Return the node's rate over the median (1 while unknown)."""
        rate = self.estimate(node)
        return rate / self.median if rate > 0.0 and self.median > 0.0 else 1.0

    def period(self, node: NodeState) -> float:
        """Return the seconds from one contribution of the node to the next; 0 while unknown."""
        speed = node.speed
        if speed.rate > 0.0:
            return speed.tokens / speed.rate
        rate = self.known(node)
        return self.tokens / rate if rate > 0.0 else 0.0

    def known(self, node: NodeState) -> float:
        """Return `estimate`, by the fleet's last figures."""
        rate = node.speed.rate
        if rate > 0.0:
            return rate
        claim = node.session.profile.tokens_per_second
        if not claim > 0.0:
            return 0.0
        believed = claim if claim > self.lowest else self.lowest
        return believed if believed < self.highest else self.highest

    def participation(self, node: NodeState, alike: bool = False) -> float:
        """Return the node's share of the living's work: the weight of one of its contributions.

        `alike`: one over their number, as all contributions are scaled to equal work. Without it n workers that each
        contribute a whole update from the same base would move the model n times as far as their mean (SparseLoCo
        divides by all peers for the same reason, not by those that contributed). No less than LEAST_SHARE of the share
        by number: others' claims take no more from it.
        """
        num_working = self.num_working
        if num_working <= 1:
            return 1.0
        own = self.usable(node)
        if alike or own <= 0.0 or self.total <= 0.0:
            return 1.0 / num_working
        least = LEAST_SHARE / len(self.counted) if self.counted else 0.0
        share = own / self.total if own < self.total else 1.0
        return share if share > least else least

    @property
    def num_working(self) -> int:
        """Return how many of the living get tasks."""
        return self.state.num_live - self.backoff.num_held

    def _counts(self, node: NodeState) -> bool:
        """Return whether the others count on the node's next contribution: it is on its way, or not overdue yet."""
        if node.id in self.uploads.sending or node.id in self.uploads.offered:
            return True
        if self.backoff.held(node.id):
            return False
        works, speed, progress = self.state.works, node.speed, self.state.progress
        if progress.host_paused and not node.open:
            return True
        waits = max(node.session.joined, speed.verdict_time, progress.continued)
        since = works[node.open[0]].time if node.open else waits
        usual = speed.turnaround if speed.rate > 0.0 else max(self.turnaround, self.period(node))
        return self.context.now <= since + max(LEAST_PATIENCE, OVERDUE * usual)

    def sees(self) -> dict[type[Decision], Callable[[Any], None]]:
        return {NodeChanged: self._changed, Judged: self._judged}


def _middle(found: Iterable[tuple[str, float]]) -> float:
    """Return the median of the values above 0; 0 where there is none."""
    return median([(owner, value) for owner, value in found if value > 0.0])


def delay(node: NodeState, first: float) -> float:
    """Return how many of its periods pass from a task to its contribution, at least `first` before several were seen.

    The first one of all is behind none. More than one where exchanges overlap with work. As with a retransmission
    timeout (Jacobson 1988), the mean and some of its spread: links are not steady.
    """
    if node.speed.rate <= 0.0:
        return first
    least = first if node.tally.accepted + node.tally.refused < FEW else 1.0
    return max(least, (node.speed.turnaround + CAUTION * node.speed.spread) * node.speed.rate / node.speed.tokens)
