"""Departures and returns of simulated machines: drawn from a fit of a real fleet, or read from a trace.

A fit draws how long a machine stays and how long it is away. Figures that are no published fit are marked as chosen.
"""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, Protocol

from barnraise.core.errors import OptionError, UnknownNameError
from barnraise.emulation.chances import Chances

HOUR = 3600.0
MOST_BYTES = 256 << 20
"""Bytes of a trace file, at most."""
LONGEST_FIELD = 1 << 17
"""Characters of a field of a trace, at most; csv's limit is one of the whole process."""
ROUNDING = 1e-6
"""Tolerance of sums of seconds."""


class Churn(Protocol):
    """Departures and returns of machines, by name; infinite times never come."""

    def first_start(self, name: str) -> float:
        """Return the seconds until the machine is first up; infinite: it never is."""

    def up(self, name: str, now: float) -> float:
        """Return the seconds for which a machine that has just come stays."""

    def down(self, name: str, now: float) -> float:
        """Return the seconds for which a machine that has just left is away."""


Draw = Callable[[random.Random], float]


@dataclass(frozen=True)
class Fit:
    """A fit of random up and down times, in seconds, and the means of both."""

    summary: str
    draw_up: Draw
    draw_down: Draw
    mean_up: float
    mean_down: float


def _lognormal(median_hours: float, sigma: float) -> tuple[Draw, float]:
    mu = math.log(median_hours * HOUR)
    return lambda rng: rng.lognormvariate(mu, sigma), math.exp(mu + sigma**2 / 2)


def _weibull(scale_hours: float, shape: float) -> tuple[Draw, float]:
    scale = scale_hours * HOUR
    return lambda rng: rng.weibullvariate(scale, shape), scale * math.gamma(1 + 1 / shape)


def _bathtub() -> tuple[Draw, float]:
    """Draw up times: a third die young (mean 2 h, chosen), others near a cap of 20 to 40 h, by 1 h (chosen)."""

    def draw(rng: random.Random) -> float:
        cap = rng.uniform(20.0, 40.0)
        early = rng.expovariate(1 / 2.0) if rng.random() < 1 / 3 else math.inf
        return HOUR * min(early, max(0.0, cap - rng.expovariate(1.0)))

    return draw, HOUR * (2.0 / 3 + 29.0 * 2 / 3)


def _hyperexponential(short_hours: float, long_hours: float, share: float) -> tuple[Draw, float]:
    def draw(rng: random.Random) -> float:
        return HOUR * rng.expovariate(1 / (short_hours if rng.random() < share else long_hours))

    return draw, HOUR * (share * short_hours + (1 - share) * long_hours)


def _fit(summary: str, up: tuple[Draw, float], down: tuple[Draw, float]) -> Fit:
    return Fit(summary, up[0], down[0], up[1], down[1])


DEFAULT = "preemptible"
_AWAY = _lognormal(0.49, 1.28)

FITS: Mapping[str, Fit] = {
    DEFAULT: _fit(
        "preemptible GPUs: up for a lognormal time, median 0.54 h (sigma 1.46); away for one, median 0.49 h (1.28)",
        _lognormal(0.54, 1.46),
        _AWAY,
    ),
    "preemptible-weibull": _fit(
        "the same with up times of a Weibull distribution, k = 0.60, lambda = 1.75 h: fewer very long ones",
        _weibull(1.75, 0.60),
        _AWAY,
    ),
    "capped": _fit(
        "pools that cap how long a machine is lent: a third goes early, the rest near a cap of 20 to 40 h",
        _bathtub(),
        _AWAY,
    ),
    "desktop": _fit(
        "desktop grids: up times of a Weibull distribution, k = 0.5, lambda = 2 h; away for minutes, or for a night",
        _weibull(2.0, 0.5),
        _hyperexponential(0.3, 9.0, 0.7),
    ),
    "desktop-hyperexponential": _fit(
        "the same with hyperexponential up times: most of half an hour, some of a day",
        _hyperexponential(0.5, 12.0, 0.75),
        _hyperexponential(0.3, 9.0, 0.7),
    ),
}
"""Fits by name."""


class Drawn:
    """Draws from a fit, for each machine independently of the others."""

    def __init__(self, fit: Fit, chances: Chances) -> None:
        self.fit = fit
        self._of = cache(lambda name: chances.of(name, "churn"))

    def first_start(self, name: str) -> float:
        """Return 0 for as many as are up at any time in the long run."""
        fit = self.fit
        return 0.0 if self._of(name).random() < fit.mean_up / (fit.mean_up + fit.mean_down) else self.down(name, 0.0)

    def up(self, name: str, now: float) -> float:
        return self.fit.draw_up(self._of(name))

    def down(self, name: str, now: float) -> float:
        return self.fit.draw_down(self._of(name))


class ChurnEvent(NamedTuple):
    """The arrival or departure of a machine."""

    seconds: float
    up: bool


class TraceChurn:
    """Follows a trace; a machine that the trace does not know stays up."""

    def __init__(self, changes: Mapping[str, Sequence[ChurnEvent]]) -> None:
        self.changes = changes

    def _next(self, name: str, now: float, up: bool) -> float:
        """Return the seconds until it next comes (or leaves)."""
        found = (change.seconds - now for change in self.changes.get(name, ()) if change.up == up)
        return min((seconds for seconds in found if seconds > 0.0), default=math.inf)

    def first_start(self, name: str) -> float:
        changes = self.changes.get(name, ())
        if not changes or (changes[0].seconds > 0.0 and not changes[0].up):
            return 0.0
        return next((change.seconds for change in changes if change.up), math.inf)

    def up(self, name: str, now: float) -> float:
        """Return 0 for a machine that should have left before it came, within a second."""
        before = [change for change in self.changes.get(name, ()) if change.seconds <= now + ROUNDING]
        if before and not before[-1].up:
            return 0.0
        return self._next(name, now, up=False)

    def down(self, name: str, now: float) -> float:
        return self._next(name, now, up=True)


def read_trace(path: Path, names: Iterable[str]) -> TraceChurn:
    """Read the trace in a CSV file of `node,seconds,up|down` lines, for the nodes of these names.

    OptionError names the malformed line and field.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise OptionError(f"{path} is larger than the {MOST_BYTES >> 20} MiB that a trace may have")
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"the trace {path} cannot be read: {error}") from None
    known, found = set(names), dict[str, list[ChurnEvent]]()
    for number, row in enumerate(_rows(path, text), 1):
        cells = [cell.strip() for cell in row]
        if not any(cells) or cells[0].startswith("#") or (number == 1 and cells[:2] == ["node", "seconds"]):
            continue
        try:
            name, change = _parsed(cells, known)
            earlier = found.setdefault(name, [])
            if earlier and change.seconds < earlier[-1].seconds:
                raise OptionError(f"seconds: is {change.seconds:g}, but '{name}' is at {earlier[-1].seconds:g} already")
            if earlier and change.up == earlier[-1].up:
                raise OptionError(f"state: '{name}' is {cells[2]} already")
        except OptionError as error:
            raise OptionError(f"{path}:{number}: {error}") from None
        earlier.append(change)
    return TraceChurn({name: _lasting(changes) for name, changes in found.items()})


def _rows(path: Path, text: str) -> Iterator[list[str]]:
    csv.field_size_limit(LONGEST_FIELD)
    rows = csv.reader(text.splitlines())
    try:
        yield from rows
    except csv.Error as error:
        raise OptionError(f"{path}:{rows.line_num}: {error}") from None


def _parsed(cells: Sequence[str], known: set[str]) -> tuple[str, ChurnEvent]:
    if len(cells) != 3:
        raise OptionError(f"a line has three fields (node, seconds, up or down), not {len(cells)}")
    name, text, state = cells
    if name not in known:
        raise OptionError(f"node: '{name}' is no node of this run ({', '.join(sorted(known)[:8])} ...)")
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0.0 <= seconds < math.inf:
        raise OptionError(f"seconds: is '{text}', but must be a number of at least 0")
    if state not in ("up", "down"):
        raise OptionError(f"state: is '{state}', but must be up or down")
    return name, ChurnEvent(seconds, state == "up")


def _lasting(changes: Sequence[ChurnEvent]) -> Sequence[ChurnEvent]:
    """Return the changes without pauses of no length."""
    short = {index for index, (a, b) in enumerate(pairwise(changes)) if a.seconds == b.seconds}
    kept = [change for index, change in enumerate(changes) if index not in short and index - 1 not in short]
    return kept or changes[-1:]


MakeChurn = Callable[[Chances], Churn]
"""Makes churn from a simulation's random generators."""


def churn_of(name: str, nodes: Iterable[str]) -> MakeChurn:
    """Return the churn of that name, or of the trace file of that name for those nodes.

    UnknownNameError, OptionError.
    """
    if name in FITS:
        return lambda chances: Drawn(FITS[name], chances)
    if Path(name).suffix or Path(name).exists():
        replayed = read_trace(Path(name), nodes)
        return lambda chances: replayed
    raise UnknownNameError("churn", name, FITS)
