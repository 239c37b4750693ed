"""When the remaining tokens of a run are counted: draws from the observed speeds, presence and throughput.

Throughput is the sum of the present nodes' rates times the share of it that the run reaches. That share is observed in
periods of equal length. A draw takes rates, the share and the periods to come from what was observed, by the bootstrap:
blocks of successive periods, as neighbours are alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from barnraise.account.calibration import Calibration, NodeHistory
from barnraise.emulation.churn import ChurnEvent

Array: TypeAlias = NDArray[Any]
"""Numbers of one period or node each."""

MOST_PERIODS, IN_PERIOD = 48, 4
"""Periods of the past at most, and contributions in one in the mean at least."""

MOST_AHEAD = 3000
"""Periods to come that a draw looks at, at most."""

MOST_ARRIVALS, MOST_CHANGES = 500, 4000
"""New nodes in a draw, and changes of one node, at most."""

DOUBT = 0.25
"""Standard deviation of the share's logarithm from one contribution."""

LOAD, LOAD_SECONDS = 0.2, 30.0
"""Standard deviation of the logarithm of throughput by other load on the machines, and the seconds for which it lasts.

They were measured on one busy machine. They matter for runs of minutes; the periods of longer ones tell more.
"""

LEVEL = 0.8
"""WhatIf of the level of throughput to come, in standard deviations of the quarters of the past."""

FIRST_RETURN = 0.5
"""Returns that are added to those that were seen, so that the first one is not excluded."""

UNSEEN = 0.7
"""Standard deviation of the logarithm of a node's rate without a task."""


@dataclass(frozen=True)
class Often:
    """How often something happened: a number of events in a number of seconds."""

    events: float = 0.0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Return the events a second."""
        return self.events / self.seconds if self.seconds > 0.0 else 0.0

    def drawn(self, rng: np.random.Generator) -> float:
        """Return a rate that the events allow; 0 where there were none."""
        return float(rng.gamma(self.events)) / self.seconds if self.events > 0.0 and self.seconds > 0.0 else 0.0

    def of_node(self, seen: Often) -> float:
        """Return the rate of one node over that of all, from what was seen of it and one event at the rate of all."""
        return (seen.events + 1.0) / (seen.seconds * self.rate + 1.0)


@dataclass(frozen=True)
class Coming:
    """How nodes come and go: departures in their presence, returns in their absence, and new nodes.

    `leaves` and `comes_back` are factors of each node on the rates of departures and returns. A run whose nodes never
    left expects no departure.
    """

    departures: Often
    returns: Often
    arrivals: Often
    leaves: Array
    comes_back: Array


@dataclass(frozen=True)
class RunPast:
    """A run until `now`, as arrays over its nodes and its periods of `width` seconds.

    `rates` are tokens a second, `spreads` standard deviations of their logarithms, `up` the seconds for which each node
    was up in each period, from its first task on, `tokens` those counted in each.
    """

    now: float
    width: float
    names: tuple[str, ...]
    rates: Array
    spreads: Array
    present: Array
    up: Array
    tokens: Array
    contributions: int
    coming: Coming

    @property
    def work(self) -> float:
        """Return the tokens that the nodes would have trained on in all periods without a pause."""
        return float((self.rates @ self.up).sum())

    @property
    def share(self) -> float:
        """Return the share of it that was counted; 0 where nothing was."""
        work = self.work
        return float(self.tokens.sum()) / work if work > 0.0 else 0.0


def past_of(found: Calibration, now: float) -> RunPast:
    """Return the arrays of a run until `now`, without the host's pauses."""
    told, now = now, found.clock(now)
    arrivals = sorted(found.arrivals.values())
    start = arrivals[0][0] if arrivals else now
    count = len(arrivals) - 1
    periods = max(1, min(MOST_PERIODS, count // IN_PERIOD))
    width = max(1e-6, (now - start) / periods)
    rates = {name: rate for name, rate in found.rates().items() if rate > 0.0}
    nodes = [found.nodes[name] for name in rates]
    up = np.zeros((len(nodes), periods))
    for row, node, rate in zip(up, nodes, rates.values(), strict=True):
        if (working := node.working(rate)) is not None:
            for begin, end in _spans(node, now):
                _fill(row, (max(begin, working) - start) / width, (end - start) / width, width)
    tokens = np.zeros(periods)
    for time, number in arrivals[1:]:
        tokens[min(periods - 1, max(0, int((time - start) / width)))] += number
    return RunPast(
        now=told,
        width=width,
        names=tuple(rates),
        rates=np.array(list(rates.values())),
        spreads=np.array([_spread(node) for node in nodes]),
        present=np.array([node.since is not None for node in nodes], bool),
        up=up,
        tokens=tokens,
        contributions=max(0, count),
        coming=_coming(nodes, start, now),
    )


def _spans(node: NodeHistory, now: float) -> list[tuple[float, float]]:
    return [*node.spans, *([(node.since, now)] if node.since is not None else [])]


def _spread(node: NodeHistory) -> float:
    """Return the standard deviation of the logarithm of a node's rate."""
    paces = [math.log(task.seconds / task.tokens) for task in node.tasks]
    if len(paces) < 2:
        return UNSEEN / (1 + len(paces))
    return math.hypot(float(np.std(paces, ddof=1)) / math.sqrt(len(paces)), 0.1 / len(paces))


def _fill(row: Array, begin: float, end: float, width: float) -> None:
    """Add `width` to the periods of a span, which is in units of periods; its part to one that is covered in part."""
    begin, end = max(0.0, begin), min(float(len(row)), end)
    if begin >= end:
        return
    first, last = int(begin), min(int(end), len(row) - 1)
    if first == last:
        row[first] += width * (end - begin)
        return
    row[first] += width * (first + 1 - begin)
    row[first + 1 : last] += width
    row[last] += width * (end - last)


def _coming(nodes: Sequence[NodeHistory], start: float, now: float) -> Coming:
    """Return how nodes came and went since `start`, when the first contribution had come."""
    left = [_departures(node, start, now) for node in nodes]
    returned = [_returns(node, start, now) for node in nodes]
    new = sum(node.came is not None and node.came > start for node in nodes)
    departures, returns = _sum(left), _sum(returned)
    if returns.seconds > 0.0:
        returns = replace(returns, events=returns.events + FIRST_RETURN)
    return Coming(
        departures,
        returns,
        Often(new, max(1e-9, now - start)),
        np.array([departures.of_node(one) for one in left]),
        np.array([0.0 if node.banned else returns.of_node(one) for node, one in zip(nodes, returned, strict=True)]),
    )


def _departures(node: NodeHistory, start: float, now: float) -> Often:
    there = sum(max(0.0, end - max(begin, start)) for begin, end in _spans(node, now))
    return Often(sum(end > start for _, end in node.spans), there)


def _returns(node: NodeHistory, start: float, now: float) -> Often:
    gone, back = [end for _, end in node.spans], [begin for begin, _ in _spans(node, now)[1:]]
    if node.banned:
        gone = gone[: len(back)]
    ends = [*back, now][: len(gone)]
    away = sum(max(0.0, end - max(begin, start)) for begin, end in zip(gone, ends, strict=True))
    return Often(sum(begin > start for begin in back), away)


def _sum(found: Sequence[Often]) -> Often:
    return Often(sum(one.events for one in found), sum(one.seconds for one in found))


@dataclass(frozen=True)
class FutureFleet:
    """The nodes in the rest of a run: their rates, which are up at its beginning, and when each comes and leaves."""

    names: tuple[str, ...]
    rates: Array
    present: Array
    changes: Mapping[int, Sequence[ChurnEvent]]  # by place

    def work(self, width: float, periods: int) -> Array:
        """Return the mean tokens a second of the nodes that are up, in each period to come."""
        found = np.full(periods, float(self.rates[self.present].sum()))
        for place, changes in self.changes.items():
            up, row, since = bool(self.present[place]), np.zeros(periods), 0.0
            found -= self.rates[place] * up
            for seconds, comes in (*changes, ChurnEvent(width * periods, up=False)):
                if up:
                    _fill(row, since / width, seconds / width, 1.0)
                up, since = comes, seconds
            found += self.rates[place] * row
        return found


@dataclass(frozen=True)
class Joiner:
    """A node that joins at the beginning of the rest."""

    name: str
    rate: float


def drawn_fleet(
    past: RunPast, rng: np.random.Generator, horizon: float, joining: Sequence[Joiner] = (), leaving: Sequence[str] = ()
) -> tuple[FutureFleet, Array]:
    """Draw a fleet for the next `horizon` seconds, and the rates that its nodes had in the past.

    Joining and leaving nodes change no draw of the others.
    """
    coming = past.coming
    departures, returns, arrivals = (often.drawn(rng) for often in (coming.departures, coming.returns, coming.arrivals))
    rates = past.rates * np.exp(rng.standard_normal(len(past.rates)) * past.spreads)
    changes: dict[int, Sequence[ChurnEvent]] = {}
    if departures or returns:
        for place, up in enumerate(past.present):
            own = departures * float(coming.leaves[place]), returns * float(coming.comes_back[place])
            changes[place] = _changes(rng, bool(up), *own, horizon)
    names, present, new = list(past.names), list(past.present), list(rates)
    number = min(MOST_ARRIVALS, int(rng.poisson(arrivals * horizon))) if arrivals and len(rates) else 0
    for place in range(number):
        begin = float(rng.uniform(0.0, horizon))
        new.append(float(rng.choice(rates)))
        names.append(f"arrival {place}")
        present.append(np.False_)
        later = _changes(rng, True, departures, returns, horizon - begin) if departures else ()
        changes[len(new) - 1] = [
            ChurnEvent(begin, up=True), *(ChurnEvent(begin + seconds, up) for seconds, up in later),
        ]  # fmt: skip
    for one in joining:
        names.append(one.name)
        new.append(one.rate)
        present.append(np.False_)
        changes[len(new) - 1] = [ChurnEvent(0.0, up=True)]
    for name in leaving:
        place = names.index(name)
        present[place] = np.False_
        changes.pop(place, None)
    return FutureFleet(tuple(names), np.array(new), np.array(present, bool), changes), rates


def _changes(rng: np.random.Generator, up: bool, departures: float, returns: float, horizon: float) -> list[ChurnEvent]:
    found: list[ChurnEvent] = []
    now = 0.0
    while len(found) < MOST_CHANGES:
        rate = departures if up else returns
        if rate <= 0.0:
            break
        now += float(rng.exponential(1.0 / rate))
        if now >= horizon:
            break
        up = not up
        found.append(ChurnEvent(now, up))
    return found


@dataclass(frozen=True)
class DrawnPace:
    """The share of their work that nodes reach in a draw: its mean, and the factors of the periods to come.

    `order` names the periods of the past whose `factors` come in turn.
    """

    share: float
    factors: Array
    order: Array

    def ahead(self, periods: int) -> Array:
        """Return the share in each period to come."""
        return self.share * self.factors[self.order[:periods]]


def drawn_pace(
    past: RunPast,
    rates: Array,
    rng: np.random.Generator,
    ahead: float,
    *,
    prior: float = 0.0,
    weight: float = 0.0,
    doubt: float = 0.0,
) -> DrawnPace:
    """Draw the share of the nodes' work for the next `ahead` seconds, given the nodes' rates.

    `prior` is a share that counts as `weight` contributions, `doubt` a further standard deviation of its logarithm.
    """
    work = rates @ past.up
    periods = len(past.tokens)
    block = max(1, periods // 4)
    chosen = _blocks(rng, periods, block, periods)
    total, counted = float(work[chosen].sum()), float(past.tokens[chosen].sum())
    if total <= 0.0 or counted <= 0.0:
        total, counted = float(work.sum()), float(past.tokens.sum())
    share = counted / total if total > 0.0 and counted > 0.0 else prior or 1.0
    if prior > 0.0 and weight > 0.0:
        logs = past.contributions * math.log(share) + weight * math.log(prior)
        share = math.exp(logs / (past.contributions + weight))
    usual = past.tokens.sum() / work.sum() if work.sum() > 0.0 and past.tokens.sum() > 0.0 else 1.0
    factors = np.divide(past.tokens, usual * work, out=np.ones(periods), where=work > 0.0)
    doubt = math.hypot(
        doubt,
        DOUBT / math.sqrt(1 + past.contributions),
        _load_doubt(past.width * periods, ahead),
        _level_doubt(factors),
    )
    return DrawnPace(share * math.exp(doubt * rng.standard_normal()), factors, _blocks(rng, periods, block, MOST_AHEAD))


def _load_doubt(before: float, ahead: float) -> float:
    """Return the standard deviation of the difference of load between the seconds before and ahead.

    Load is a process whose correlation falls exponentially with time.

    >>> [round(_load_doubt(seconds, 2 * seconds), 3) for seconds in (1.0, 20.0, 3600.0)]
    [0.051, 0.164, 0.031]
    """
    one, two = max(1e-3, before / LOAD_SECONDS), max(1e-3, min(ahead, 1e9) / LOAD_SECONDS)
    alone = sum(2.0 * (x - 1.0 + math.exp(-x)) / x**2 for x in (one, two))
    common = 2.0 * (1.0 - math.exp(-one)) * (1.0 - math.exp(-two)) / (one * two)
    return LOAD * math.sqrt(max(0.0, alone - common))


def _level_doubt(factors: Array) -> float:
    """Return how much the level of throughput changes, by the standard deviation of the quarters of the past."""
    if len(factors) < 8:
        return 0.0
    quarters = [float(part.mean()) for part in np.array_split(factors, 4)]
    return LEVEL * float(np.std(quarters, ddof=1))


def _blocks(rng: np.random.Generator, periods: int, block: int, wanted: int) -> Array:
    starts = rng.integers(0, periods, -(-wanted // block))
    return ((starts[:, None] + np.arange(block)) % periods).ravel()[:wanted]


def seconds_until(tokens: float, fleet: FutureFleet, pace: DrawnPace, width: float, usual: float) -> float:
    """Return the seconds until `tokens` are counted, infinite where it does not come to that.

    `usual` are the seconds that it takes about; periods to come are longer than those of the past where they would be
    too many.
    """
    if tokens <= 0.0:
        return 0.0
    longer = max(1.0, math.ceil(10.0 * usual / width / MOST_AHEAD)) if usual < math.inf else 1.0
    width, periods = width * longer, min(MOST_AHEAD, max(64, math.ceil(10.0 * usual / (width * longer))))
    shares = pace.ahead(periods)
    if longer > 1.0:  # the mean of several periods
        shares = pace.share + (shares - pace.share) / math.sqrt(longer)
    ahead = shares * fleet.work(width, periods) * width
    counted = np.cumsum(ahead * (ahead > 0.0))
    place = int((counted < tokens).sum())
    if place == periods:
        return math.inf
    before = float(counted[place - 1]) if place else 0.0
    return width * (place + (tokens - before) / (float(counted[place]) - before))
