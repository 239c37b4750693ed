"""The alerts that hold and the forecast of a run, beside what its account says: for pages while they are open."""

from __future__ import annotations

import time
from dataclasses import replace

from barnraise.account.alerts import Watch
from barnraise.account.moment import RunMoment
from barnraise.account.vitals import vitals_of
from barnraise.assembly.forecaster import Forecaster, KeptForecast
from barnraise.core.text import printable
from barnraise.core.units import duration_text
from barnraise.ledger import RunDirectory


class Outlook:
    """Adds alerts and the newest forecast to moments of a run; for one thread at a time."""

    def __init__(self, run: RunDirectory) -> None:
        self._watch, self._forecaster = Watch(), Forecaster(run)

    def of(self, seen: RunMoment) -> RunMoment:
        """Return the moment with what is added; alerts about rates count from the first call on."""
        self._watch.look(vitals_of(seen, time.monotonic()))
        forecast = self._forecaster.latest() if seen.works else None
        return replace(
            seen, alerts=tuple(self._watch.firing.values()), forecast=None if forecast is None else told(forecast)
        )

    def close(self) -> None:
        """End the process that makes forecasts."""
        self._forecaster.close()


def told(forecast: KeptForecast) -> dict[str, object]:
    """Return a forecast for the page: times of the run's clock, and a sentence.

    >>> told(KeptForecast(1.0, now=60.0, at=7260.0, low=3660.0, high=None))["text"]
    'ends in 2 h (80%: from 1 h on)'
    """
    if forecast.problem:
        return {"text": f"no forecast: {printable(forecast.problem, 200)}"}
    if forecast.at is None:
        return {"text": "does not end as it stands"}
    least = duration_text(max(0.0, (forecast.low or forecast.at) - forecast.now))
    most = "" if forecast.high is None else duration_text(max(0.0, forecast.high - forecast.now))
    bounds = f"{least} to {most}" if most else f"from {least} on"
    text = f"ends in {duration_text(max(0.0, forecast.at - forecast.now))} (80%: {bounds})"
    return {"text": text, "at": forecast.at, "low": forecast.low, "high": forecast.high}
