"""When a run ends, from the throughput and the nodes that its ledger shows.

`assembly.run_forecast` besides plays the rest of the run in the simulator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from barnraise.account.calibration import Calibration, calibrate
from barnraise.assembly.outlook import FutureFleet, Joiner, RunPast, drawn_fleet, drawn_pace, past_of, seconds_until
from barnraise.assembly.what_if import UNCHANGED, WhatIf
from barnraise.config.load import load
from barnraise.core.errors import InputError
from barnraise.core.text import printable
from barnraise.core.units import count_text, duration_text
from barnraise.ledger import LedgerView, RunDirectory

DRAWS = 200
"""Draws of a forecast."""

PRIOR = 4.0
"""Contributions for which the simulator's throughput counts beside the run's own."""

LOW, HIGH = 0.1, 0.9
"""Shares of the draws below the interval's ends."""


@dataclass(frozen=True)
class Forecast:
    """A run's end by its forecast, made at `now` on the run's clock.

    `at` is the median, `low` and `high` bound 80% of the draws; each is infinite where the run does not end in that
    share of them. `rate` are the tokens a second observed so far. `simulated` is the share of its nodes' work that the
    simulator reaches, over that of the run itself; None where nothing was simulated.
    """

    now: float
    at: float
    low: float
    high: float
    tokens: int
    budget: int
    rate: float
    present: int
    contributions: int
    draws: int
    simulated: float | None = None

    @property
    def left(self) -> float:
        """Return the seconds until the end."""
        return self.at - self.now

    def as_json(self) -> dict[str, Any]:
        """Return the values for programs; seconds are from now, None: it does not end."""
        seconds = {"seconds": self.at, "low_seconds": self.low, "high_seconds": self.high}
        return {
            **{name: round(at - self.now, 3) if at < math.inf else None for name, at in seconds.items()},
            "at": round(self.at, 3) if self.at < math.inf else None,
            "now": round(self.now, 3),
            "tokens": self.tokens,
            "budget": self.budget,
            "tokens_per_second": round(self.rate, 3),
            "present": self.present,
            "contributions": self.contributions,
            "draws": self.draws,
            "simulated": self.simulated,
        }


def forecast(found: Calibration, budget: int, now: float, *, draws: int = DRAWS, seed: int = 0) -> Forecast:
    """Return the forecast of a run with this budget of tokens, from its own throughput alone.

    It costs milliseconds where few nodes come and go. Raises InputError where there is nothing to forecast from.
    """
    require_begun(found)
    past = past_of(found, now)
    return outcome(found, past, budget, draws_of(past, budget - found.counted, draws, seed), tail=tail_of(found))


def require_begun(found: Calibration) -> None:
    """Raise InputError where a run is over, or its nodes have contributed too little."""
    if found.finished:
        raise InputError(
            f"the run is over, nothing is left to forecast: it ended after {duration_text(found.end)} of its clock, "
            f"since {printable(found.finished)}"
        )
    if len(found.arrivals) < 2:
        told = count_text(len(found.arrivals), "contribution")
        raise InputError(
            f"only {told} of the run's nodes was accepted so far, and a forecast needs 2: ask again when the "
            "run has made progress"
        )


def tail_of(found: Calibration) -> float:
    """Return the seconds that the measurement of the last version takes, by those of earlier versions."""
    return sorted(found.evaluating)[len(found.evaluating) // 2] if found.evaluating else 0.0


def draws_of(
    past: RunPast,
    tokens: float,
    draws: int,
    seed: int,
    *,
    change: WhatIf = UNCHANGED,
    factor: float = 1.0,
    prior: float = 0.0,
    doubt: float = 0.0,
) -> list[float]:
    """Return the seconds until the remaining tokens are counted in each draw.

    A changed run reaches `factor` times the share of its nodes' work, and the simulator's share (`prior`) counts a bit.
    `doubt` is a standard deviation of the logarithm of that factor.
    """
    usual = usual_seconds(past, tokens, prior)
    seconds = []
    for number in range(draws):
        fleet, rates = fleet_of(past, seed + number, usual, change)
        rng = np.random.default_rng((seed + number, 1))
        pace = drawn_pace(past, rates, rng, usual, prior=prior, weight=PRIOR, doubt=doubt)
        seconds.append(seconds_until(tokens, fleet, replace(pace, share=pace.share * factor), past.width, usual))
    return seconds


def fleet_of(past: RunPast, seed: int, usual: float, change: WhatIf) -> tuple[FutureFleet, Any]:
    """Draw the fleet of the rest of a run that lasts about `usual` seconds, and the rates of its nodes in the past."""
    joining = [Joiner(name, one.rate) for one in change.joining for name in one.names]
    horizon = 10.0 * usual if usual < math.inf else 1000.0 * past.width * len(past.tokens)
    return drawn_fleet(past, np.random.default_rng((seed, 0)), horizon, joining, change.leaving)


def usual_seconds(past: RunPast, tokens: float, prior: float) -> float:
    """Return about how long the remaining tokens take, with the present nodes or with those of the past if fewer.

    `prior` is the share of its work that a run without throughput reaches.
    """
    share = past.share or prior
    rates = float(past.rates[past.present].sum()), past.work / (past.width * len(past.tokens))
    slowest = min((share * rate for rate in rates if rate > 0.0), default=0.0)
    return max(1e-6, tokens / slowest) if slowest > 0.0 else math.inf


def outcome(
    found: Calibration,
    past: RunPast,
    budget: int,
    seconds: Sequence[float],
    tail: float,
    simulated: float | None = None,
) -> Forecast:
    """Return the forecast from the seconds of all draws; the end of the run takes `tail` seconds besides."""
    ordered = sorted(seconds)
    low, middle, high = (_quantile(ordered, share) for share in (LOW, 0.5, HIGH))
    return Forecast(
        now=past.now,
        at=past.now + middle + tail,
        low=past.now + low + tail,
        high=past.now + high + tail,
        tokens=found.counted,
        budget=budget,
        rate=float(past.tokens.sum()) / (past.width * len(past.tokens)),
        present=sum(node.since is not None for node in found.nodes.values()),
        contributions=len(found.arrivals),
        draws=len(ordered),
        simulated=simulated,
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of ordered values; infinite ones stay so."""
    place = share * (len(ordered) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    return low if low == high else low + (place - math.floor(place)) * (high - low)


def brief(run: RunDirectory, draws: int = DRAWS) -> Forecast:
    """Return the forecast of a run from its own throughput alone, which is quick; raises as `of_run`."""
    found, now = known(run)
    return forecast(found, load(run.run_file).training.tokens, now, draws=draws)


def known(run: RunDirectory) -> tuple[Calibration, float]:
    """Return the facts of a run, and the time on its clock, which stands still while no controller works."""
    running = run.holder() is not None
    with LedgerView(run.ledger) as view:
        found, now = calibrate(view), view.end
    return found, now + run.unchanged_for() if running else now
