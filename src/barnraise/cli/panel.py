"""The live view's picture of one moment of a run: plain values in, a rich renderable out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group
from rich.text import Text

from barnraise.account.chronicle import Happening
from barnraise.account.links import LinkUse
from barnraise.account.nodes import NodeRow
from barnraise.cli.columns import Cell, columns
from barnraise.cli.tables import node_table, use_table
from barnraise.core.units import bytes_text, duration_text

BLOCKS = "▁▂▃▄▅▆▇█"
MOST_EVENTS = 5
CHROME = 10
"""Lines of the picture beside nodes and events."""

LONGEST_BAR = 60


@dataclass(frozen=True)
class Moment:
    """What there is to see. `rate` is tokens a second over the last seconds, `losses` are (version, loss)."""

    run: str
    mode: str
    seconds: float
    tokens: int
    budget: int
    rate: float
    losses: Sequence[tuple[int, float]]
    version: int
    buffer_size: int
    live: int
    accepted: int
    refused: int
    discarded: int
    bytes_up: int
    bytes_down: int
    standing: str  # "", or why it does not train: starting, paused, finishing
    rows: Sequence[NodeRow]
    happenings: Sequence[Happening]
    links: Sequence[LinkUse] = ()

    @property
    def progress(self) -> float:
        return min(1.0, self.tokens / self.budget)


def draw(moment: Moment, *, width: int = 100, height: int = 40) -> Group:
    """The picture, for a terminal of that size: in about `height` lines at most."""
    uses = [Text(), *use_table(moment.links)] if moment.links else []
    room = max(3, height - CHROME - len(uses) - min(MOST_EVENTS, len(moment.happenings)))
    parts = [_heading(moment), _progress(moment, width), Text(), *_figures(moment), Text()]
    parts += node_table(moment.rows, most=room) if moment.rows else []
    parts += uses
    if moment.happenings:
        parts += [Text(), *told(moment.happenings[-MOST_EVENTS:])]
    return Group(*parts)


def line(moment: Moment) -> str:
    """The same moment for a log, on one line."""
    loss = f"{moment.losses[-1][1]:.3f}" if moment.losses else "-"
    parts = [
        f"{moment.progress:6.1%}",
        f"loss {loss}",
        f"version {moment.version}",
        f"{moment.rate:,.0f} tokens/s" if moment.rate else "- tokens/s",
        f"{moment.live} live, K {moment.buffer_size}",
        f"accepted {moment.accepted}, refused {moment.refused}",
        f"up {bytes_text(moment.bytes_up)}, down {bytes_text(moment.bytes_down)}",
    ]
    return "  ".join([*parts, moment.standing] if moment.standing else parts)


def sparkline(values: Sequence[float], width: int = 24) -> str:
    """The curve of `values` in blocks, the lowest the smallest; of more than `width` values, evenly chosen ones.

    >>> sparkline([4.0, 3.0, 2.0, 1.0]), sparkline([1.0, 1.0])
    ('█▆▃▁', '▁▁')
    """
    kept = [value for value in values if math.isfinite(value)]
    if len(kept) > width:
        kept = [kept[round(index * (len(kept) - 1) / (width - 1))] for index in range(width)]
    low, high = min(kept, default=0.0), max(kept, default=0.0)
    scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(BLOCKS[round((value - low) * scale)] for value in kept)


def _heading(moment: Moment) -> Text:
    text = Text.assemble((moment.run, "bold"), f"  {moment.mode}  {duration_text(moment.seconds)}")
    if moment.standing:
        text.append(f"  {moment.standing}", "yellow")
    return text


def _progress(moment: Moment, width: int) -> Text:
    left = moment.budget - moment.tokens
    facts = [f"{moment.progress:.1%}", f"{_short(moment.tokens)} of {_short(moment.budget)} tokens"]
    facts.append(f"{moment.rate:,.0f}/s")
    if left > 0 and moment.rate > 0:
        facts.append(f"{duration_text(left / moment.rate)} left")
    room = min(LONGEST_BAR, max(10, width - sum(map(len, facts)) - 3 * len(facts)))
    done = round(room * moment.progress)
    bar = [("\u2501" * done, "green" if done == room else "cyan"), ("\u2501" * (room - done), "bright_black")]
    return Text.assemble(*bar, "  " + "   ".join(facts), no_wrap=True, overflow="ellipsis")


def _figures(moment: Moment) -> list[Text]:
    """Two lines of labelled figures that do not move."""
    values = [value for _, value in moment.losses]
    loss = f"{values[-1]:.3f} {sparkline(values)}" if values else "-"
    pairs: list[tuple[str, Cell]] = [
        ("loss", (loss, "bold")),
        ("accepted", f"{moment.accepted:,}"),
        ("refused", (f"{moment.refused:,}", "yellow" if moment.refused else "")),
        ("up", bytes_text(moment.bytes_up)),
        ("version", f"{moment.version:,}"),
        ("K", f"{moment.buffer_size} of {moment.live} live"),
        ("discarded", f"{moment.discarded:,}"),
        ("down", bytes_text(moment.bytes_down)),
    ]
    rows = [[cell for label, value in pairs[at : at + 4] for cell in ((label, "dim"), value)] for at in (0, 4)]
    return columns(rows, "<" * 8, header=False, gap=3)


def told(happenings: Sequence[Happening]) -> list[Text]:
    """A line for each: when, and what."""
    rows: list[list[Cell]] = [
        [(duration_text(happening.time), "dim"), (happening.text, _EVENT_STYLES.get(happening.kind, ""))]
        for happening in happenings
    ]
    return columns(rows, "><", header=False)


_EVENT_STYLES = {
    "killed": "red",
    "left": "red",
    "revoked": "red",
    "interrupted": "yellow",
    "joined": "green",
    "back": "green",
    "restarted": "green",
    "paused": "yellow",
    "stopping": "yellow",
    "checkpoint_failed": "red",
    "frame_dropped": "yellow",
}


def _short(count: int) -> str:
    """A count of tokens in three digits.

    >>> _short(950), _short(12_345), _short(7_800_000)
    ('950', '12.3k', '7.80M')
    """
    value, units = float(count), ["", "k", "M", "G", "T"]
    while value >= 999.5 and len(units) > 1:
        value, units = value / 1000, units[1:]
    digits = 0 if not units[0] and value == int(value) else max(0, 2 - int(math.log10(max(value, 1))))
    return f"{value:.{digits}f}{units[0]}"
