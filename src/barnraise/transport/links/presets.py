"""Links by name, and by parameters: `cellular`, `10mbit/50ms`, `satellite/1%`."""

from __future__ import annotations

import re
import zlib
from dataclasses import replace

from barnraise.core.errors import OptionError, UnknownNameError
from barnraise.transport.links.link import BrownOuts, Link, LinkDirection

MBIT = 125_000.0
"""Bytes a second in a Mbit/s."""

REGIONS = (
    ("Ohio", 11, 1160),
    ("Oregon", 65, 1010),
    ("Ireland", 78, 950),
    ("Frankfurt", 93, 880),
    ("São Paulo", 118, 760),
    ("Tokyo", 157, 640),
    ("Seoul", 178, 580),
    ("Sydney", 203, 500),
    ("Singapore", 224, 430),
    ("Jakarta", 265, 330),
)
"""Regions of `ten-regions`: name, round trip in ms and Mbit/s, seen from the east coast of the USA."""

NO_LINK, TEN_REGIONS = "none", "ten-regions"


def _even(mbit: float, ms: float, *, down: float | None = None, **more: float) -> Link:
    """Return a link of `mbit` Mbit/s up (and down), and `ms` one way; `more` holds for both directions."""
    up = LinkDirection(mbit * MBIT, ms / 1000, **more)
    return Link(up, replace(up, rate=(down or mbit) * MBIT))


LINKS: dict[str, Link] = {
    NO_LINK: _even(10_000, 0.1),
    "good": _even(100, 10),
    "dsl": _even(10, 20, down=50),
    "cellular": _even(10, 50, down=30, jitter=0.020, loss=0.0005),
    "satellite": _even(5, 300, down=50, jitter=0.010),
    "degraded": _even(2, 80, down=5, jitter=0.040, loss=0.01, duplication=0.001),
    "brownout": replace(_even(50, 20, jitter=0.005), brown_outs=BrownOuts(every=120.0, lasting=8.0)),
    "straggler": _even(1, 150, jitter=0.030, loss=0.002),
    TEN_REGIONS: _even(REGIONS[0][2], REGIONS[0][1] / 2),
}
"""The presets; `ten-regions` is its first region here, as `link` gives each node its own."""

SUMMARIES = {
    NO_LINK: "nothing is emulated",
    "good": "a fast line",
    "dsl": "a home line",
    "cellular": "a phone: jitter, a little loss",
    "satellite": "geostationary",
    "degraded": "a poor line: jitter, much loss, some duplicates",
    "brownout": "a fair line that goes dark for 8 s every 2 min",
    "straggler": "one that holds the others up",
    TEN_REGIONS: "each node in one of ten regions, 11 to 265 ms there and back, 330 to 1160 Mbit/s",
}

FASTEST, SLOWEST = 100_000.0, 0.001
"""Limits of a rate, in Mbit/s."""

LONGEST = 60.0
"""Limit of delay and jitter, in seconds."""

MOST_LOSS = 0.5
"""Limit of a probability of loss: beyond, no stream gets through."""

_RATE = re.compile(r"([0-9]+\.?[0-9]*)(k|m|g)bit")
_TIME = re.compile(r"([0-9]+\.?[0-9]*)(us|ms|s)")
_SHARE = re.compile(r"([0-9]+\.?[0-9]*)%")
_MBITS = {"k": 1e-3, "m": 1.0, "g": 1e3}
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def link(name: str, index: int = 0) -> Link:
    """Return the preset called `name`, for the node with that index (`ten-regions` cycles).

    Raises UnknownNameError.
    """
    if name not in LINKS:
        raise UnknownNameError("link preset", name, LINKS)
    if name != TEN_REGIONS:
        return LINKS[name]
    _, ms, mbit = REGIONS[index % len(REGIONS)]
    return _even(mbit, ms / 2)


def index_of(node: str) -> int:
    """Return an index for a node that knows only its own name."""
    return zlib.crc32(node.encode())


def parse(text: str, index: int = 0) -> Link:
    """Parse a link: `PRESET`, `RATE/DELAY`, or a preset and parameters that replace its own.

    Parameters, in this order where there are two of a kind: rate both ways, or up and down (`kbit`, `mbit`, `gbit`);
    delay one way and jitter (`us`, `ms`, `s`); loss (`%`). Raises UnknownNameError and OptionError.

    >>> parse("10mbit/50ms").up
    LinkDirection(rate=1250000.0, delay=0.05, jitter=0.0, loss=0.0, duplication=0.0)
    >>> parse("cellular/2mbit/8mbit").down.rate
    1000000.0
    """
    first, *rest = re.split(r"[/,]", text.strip())
    named = first in LINKS or not first[:1].isdigit()
    base = link(first, index) if named else LINKS[NO_LINK]
    figures = [figure.strip() for figure in (rest if named else [first, *rest])]
    rates = [_limited(text, float(m[1]) * _MBITS[m[2]], SLOWEST, FASTEST, "Mbit/s") for m in _all(_RATE, figures)]
    times = [_limited(text, float(m[1]) * _SECONDS[m[2]], 0.0, LONGEST, "s") for m in _all(_TIME, figures)]
    losses = [_limited(text, float(m[1]) / 100, 0.0, MOST_LOSS, "(loss)") for m in _all(_SHARE, figures)]
    if len(rates) + len(times) + len(losses) < len(figures) or len(rates) > 2 or len(times) > 2 or len(losses) > 1:
        raise OptionError(
            f"link '{text}' cannot be read: write a preset ({', '.join(LINKS)}), or figures as in 10mbit/50ms "
            "(rate, or up and down; delay one way, jitter; loss in %: 2mbit/10mbit/50ms/5ms/0.1%)"
        )
    up, down = (rates[0] * MBIT, rates[-1] * MBIT) if rates else (None, None)
    delay, jitter, loss = times[0] if times else None, times[1] if times[1:] else None, losses[0] if losses else None
    return base.changed(up=up, down=down, delay=delay, jitter=jitter, loss=loss)


def _all(pattern: re.Pattern[str], figures: list[str]) -> list[re.Match[str]]:
    return [match for figure in figures if (match := pattern.fullmatch(figure))]


def _limited(text: str, value: float, low: float, high: float, unit: str) -> float:
    if not low <= value <= high:
        raise OptionError(f"link '{text}': {value:g} {unit} is not between {low:g} and {high:g}")
    return value


def described(found: Link) -> str:
    """Describe a link in a few words.

    >>> described(parse("2mbit/10mbit/50ms/5ms/0.1%"))
    '2 Mbit/s up, 10 Mbit/s down, 50 ms + up to 5 ms one way, 0.1% loss'
    """
    up, down = (f"{way.rate / MBIT:g} Mbit/s" for way in (found.up, found.down))
    told = [up if up == down else f"{up} up, {down} down", f"{1000 * found.up.delay:g} ms"]
    told[1] += f" + up to {1000 * found.up.jitter:g} ms one way" if found.up.jitter else " one way"
    if found.up.loss:
        told.append(f"{100 * found.up.loss:g}% loss")
    if found.brown_outs:
        told.append(f"dark for {found.brown_outs.lasting:g} s every {found.brown_outs.every:g} s")
    return ", ".join(told)
