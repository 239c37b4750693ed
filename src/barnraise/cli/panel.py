"""The live view's picture of one moment of a run: plain values in, a rich renderable out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group
from rich.text import Text

from barnraise.account.chronicle import Happening
from barnraise.account.facts import withstood_text
from barnraise.account.links import LinkUse
from barnraise.account.nodes import NodeRow
from barnraise.cli.columns import Cell, columns
from barnraise.cli.tables import node_table, use_table
from barnraise.core.text import printable
from barnraise.core.units import bytes_text, duration_text, loss_text

BLOCKS = "▁▂▃▄▅▆▇█"
MOST_EVENTS = 5
CHROME = 10
"""Lines of the picture beside nodes and events."""

LONGEST_BAR = 60


@dataclass(frozen=True)
class Heading:
    """The run's name and state."""

    run: str
    mode: str
    seconds: float
    condition: str  # "", or why it does not train: starting, paused, finishing
    standby: str = ""  # its standby's lag, if one follows


@dataclass(frozen=True)
class PanelProgress:
    """Tokens of the budget; `rate` is tokens a second over the last seconds."""

    tokens: int
    budget: int
    rate: float

    @property
    def share(self) -> float:
        return min(1.0, self.tokens / self.budget)


@dataclass(frozen=True)
class Figures:
    """Figures that have been counted so far."""

    version: int
    buffer_size: int
    live: int
    accepted: int
    refused: int
    discarded: int
    bytes_up: int
    bytes_down: int
    f: int | None = None  # attackers that the newest version's rule was for, where it has such a number
    guaranteed: bool = True


@dataclass(frozen=True)
class Moment:
    """The content of one picture.

    `losses` are (version, loss).
    """

    heading: Heading
    progress: PanelProgress
    figures: Figures
    losses: Sequence[tuple[int, float]]
    rows: Sequence[NodeRow]
    happenings: Sequence[Happening]
    links: Sequence[LinkUse] = ()


def draw(moment: Moment, *, width: int = 100, height: int = 40) -> Group:
    """Draw the picture, for a terminal of that size: in about `height` lines at most."""
    uses = [Text(), *use_table(moment.links)] if moment.links else []
    room = max(3, height - CHROME - len(uses) - min(MOST_EVENTS, len(moment.happenings)))
    drawn = [_heading(moment.heading), _progress(moment.progress, width), Text()]
    drawn += [*_figures(moment.figures, [loss for _, loss in moment.losses]), Text()]
    drawn += node_table(moment.rows, most=room) if moment.rows else []
    drawn += uses
    if moment.happenings:
        drawn += [Text(), *told(moment.happenings[-MOST_EVENTS:])]
    return Group(*drawn)


def line(moment: Moment) -> str:
    """Return the same moment for a log, on one line."""
    loss = loss_text(moment.losses[-1][1]) if moment.losses else "-"
    progress, figures, condition = moment.progress, moment.figures, printable(moment.heading.condition)
    shown = [
        f"{progress.share:6.1%}",
        f"loss {loss}",
        f"version {figures.version}",
        f"{progress.rate:,.0f} tokens/s" if progress.rate else "- tokens/s",
        f"{figures.live} live, K {figures.buffer_size}{_withstood(figures)}",
        f"accepted {figures.accepted}, refused {figures.refused}",
        f"up {bytes_text(figures.bytes_up)}, down {bytes_text(figures.bytes_down)}",
        *([f"standby {printable(moment.heading.standby)}"] if moment.heading.standby else []),
    ]
    return "  ".join([*shown, condition] if condition else shown)


def as_json(moment: Moment) -> dict[str, Any]:
    """Return the same moment for a program; `waits_for` is why it does not train, or makes no version."""
    heading, progress = moment.heading, moment.progress
    figures = asdict(moment.figures)
    return {
        "seconds": round(heading.seconds, 3),
        "tokens": progress.tokens,
        "budget": progress.budget,
        "progress": progress.share,
        "tokens_per_second": round(progress.rate, 1),
        "loss": moment.losses[-1][1] if moment.losses else None,
        **figures,
        "standby": heading.standby or None,
        "waits_for": heading.condition or None,
        "links": [asdict(link) for link in moment.links],
    }


def sparkline(values: Sequence[float], width: int = 24) -> str:
    """Draw the curve of `values` in blocks, the lowest the smallest; more than `width` values are thinned evenly.

    >>> sparkline([4.0, 3.0, 2.0, 1.0]), sparkline([1.0, 1.0])
    ('█▆▃▁', '▁▁')
    """
    kept = [value for value in values if math.isfinite(value)]
    if len(kept) > width:
        kept = [kept[round(index * (len(kept) - 1) / (width - 1))] for index in range(width)]
    low, high = min(kept, default=0.0), max(kept, default=0.0)
    scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(BLOCKS[round((value - low) * scale)] for value in kept)


def _heading(heading: Heading) -> Text:
    text = Text.assemble((printable(heading.run), "bold"), f"  {heading.mode}  {duration_text(heading.seconds)}")
    if heading.standby:
        text.append(f"  standby {printable(heading.standby)}", "dim")
    if heading.condition:
        text.append(f"  {printable(heading.condition)}", "yellow")
    return text


def _progress(progress: PanelProgress, width: int) -> Text:
    left = progress.budget - progress.tokens
    facts = [f"{progress.share:.1%}", f"{_short(progress.tokens)} of {_short(progress.budget)} tokens"]
    facts.append(f"{progress.rate:,.0f}/s")
    if left > 0 and progress.rate > 0:
        facts.append(f"{duration_text(left / progress.rate)} left")
    room = min(LONGEST_BAR, max(10, width - sum(map(len, facts)) - 3 * len(facts)))
    done = round(room * progress.share)
    bar = [("\u2501" * done, "green" if done == room else "cyan"), ("\u2501" * (room - done), "bright_black")]
    return Text.assemble(*bar, "  " + "   ".join(facts), no_wrap=True, overflow="ellipsis")


def _figures(figures: Figures, losses: Sequence[float]) -> list[Text]:
    """Return two lines of labelled figures with fixed places."""
    loss = f"{loss_text(losses[-1])} {sparkline(losses)}" if losses else "-"
    pairs: list[tuple[str, Cell]] = [
        ("loss", (loss, "bold")),
        ("accepted", f"{figures.accepted:,}"),
        ("refused", (f"{figures.refused:,}", "yellow" if figures.refused else "")),
        ("up", bytes_text(figures.bytes_up)),
        ("version", f"{figures.version:,}"),
        ("K", f"{figures.buffer_size} of {figures.live} live{_withstood(figures)}"),
        ("discarded", f"{figures.discarded:,}"),
        ("down", bytes_text(figures.bytes_down)),
    ]
    rows = [[cell for label, value in pairs[at : at + 4] for cell in ((label, "dim"), value)] for at in (0, 4)]
    return columns(rows, "<" * 8, header=False, gap=3)


def _withstood(figures: Figures) -> str:
    return withstood_text(figures.f, figures.guaranteed)


def told(happenings: Sequence[Happening]) -> list[Text]:
    """Return a line for each event: time and text."""
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
    "host_paused": "yellow",
    "host_continued": "green",
    "stopping": "yellow",
    "checkpoint_failed": "red",
    "frame_dropped": "yellow",
}


def _short(count: int) -> str:
    """Return a count of tokens in three digits.

    >>> _short(950), _short(12_345), _short(7_800_000)
    ('950', '12.3k', '7.80M')
    """
    value, units = float(count), ["", "k", "M", "G", "T"]
    while value >= 999.5 and len(units) > 1:
        value, units = value / 1000, units[1:]
    digits = 0 if not units[0] and value == int(value) else max(0, 2 - int(math.log10(max(value, 1))))
    return f"{value:.{digits}f}{units[0]}"
