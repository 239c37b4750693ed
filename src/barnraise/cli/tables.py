"""Tables for the terminal: the nodes of a run, the traffic of a lab's links, and scores on formulas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from barnraise.account.chronicle import plain
from barnraise.account.links import LinkUse
from barnraise.account.nodes import (
    BANNED,
    GONE,
    HELD_OFF,
    IDLE,
    KILLED,
    LEFT,
    PROBATION,
    QUARANTINED,
    REVOKED,
    STARTING,
    SUSPECT,
    TRAINING,
    NodeRow,
    in_order_of_interest,
)
from barnraise.account.scores import tables
from barnraise.cli.columns import Cell, columns
from barnraise.core.text import LONGEST_NAME
from barnraise.core.units import bytes_text
from barnraise.transport.links.presets import MBIT
from barnraise.trust.roles import TRUSTEE

if TYPE_CHECKING:
    from barnraise.data.sat.scores import SatScores

STYLES = {TRAINING: "green", IDLE: "cyan", STARTING: "yellow", LEFT: "red", KILLED: "red", REVOKED: "red"} | {
    SUSPECT: "yellow",
    HELD_OFF: "yellow",
    PROBATION: "yellow",
    TRUSTEE: "cyan",
    QUARANTINED: "red",
    BANNED: "red",
}

MOST_LINKS = 8
"""Links that the live view shows."""

FULL = 0.9
"""Share of its rate from which a link counts as full."""


def node_table(rows: Sequence[NodeRow], *, most: int = 40) -> list[Text]:
    """Return the rows as lines for the terminal; columns without values are left out."""
    shown = in_order_of_interest(rows, most)
    seen, lost = any(row.seen is not None for row in rows), any(row.lost is not None for row in rows)
    staleness = "stale (mean, max)" if lost else "stale"
    header = ["worker", "state", "device", "speed", "tokens/s", "share", staleness, "accepted", "refused"]
    header += ["lost"] * lost + ["seen"] * seen
    cells: list[Sequence[Cell]] = [header, *(_cells(row, seen, lost) for row in shown)]
    lines = columns(cells, "<<<" + ">" * (len(header) - 3))
    if len(shown) < len(rows):
        lines.append(Text(f"and {len(rows) - len(shown):,} more", "dim"))
    return lines


def _cells(row: NodeRow, seen: bool, lost: bool) -> list[Cell]:
    quiet = "dim" if row.state in GONE else ""
    cells: list[Cell] = [
        (plain(row.name, LONGEST_NAME), quiet),
        (row.state, STYLES.get(row.state, quiet)),
        (row.device, "dim"),
    ]
    figures = [f"{row.speed:.2f}x" if row.speed else "-", f"{row.rate:,.0f}" if row.rate else "-"]
    figures += [f"{row.share:.0%}", row.staleness, f"{row.accepted:,}"]
    cells += [(figure, quiet) for figure in figures]
    cells.append((f"{row.refused:,}", "yellow" if row.refused else quiet))
    if lost:
        cells.append((f"{row.lost or 0:,}", quiet))
    if seen:
        cells.append(("-" if row.seen is None else f"{row.seen:.1f} s", quiet))
    return cells


def score_tables(scores: SatScores) -> Iterator[list[Text]]:
    """Yield the tables of a model's scores on formulas: by held-out set, and by decisions taken back."""
    for header, rows in tables(scores):
        named = [(plain(row[0], LONGEST_NAME), *row[1:]) for row in rows]
        yield columns([header, *named], "<" + ">" * (len(header) - 1))


def use_table(uses: Sequence[LinkUse]) -> list[Text]:
    """Return the live view's lines: all links, or the busiest of many."""
    least = sorted((use.up + use.down for use in uses), reverse=True)[:MOST_LINKS][-1]
    shown = [use for use in uses if use.up + use.down >= least][:MOST_LINKS]
    rows: list[list[Cell]] = [["link", "Mbit/s up", "of", "", "down", "of", ""]]
    for use in shown:
        rows.append([plain(use.name, LONGEST_NAME), *_way(use.up, use.up_rate), *_way(use.down, use.down_rate)])
    return columns(rows, "<>>>>>>")


def use_line(uses: Sequence[LinkUse]) -> str:
    """Return the same for a log, on one line; empty without links."""
    shown = [f"{plain(use.name, LONGEST_NAME)} {use.up / MBIT:.1f}/{use.down / MBIT:.1f}" for use in uses[:MOST_LINKS]]
    return f"        links, Mbit/s up/down: {'  '.join(shown)}" if shown else ""


def _way(used: float, rate: float | None) -> list[Cell]:
    share = used / rate if rate else 0.0
    return [
        f"{used / MBIT:.2f}",
        f"{rate / MBIT:g}" if rate else "any",
        (f"{min(share, 9.99):.0%}" if rate else "", "yellow" if share >= FULL else ""),
    ]


def total_table(content: Mapping[str, Any]) -> list[Text]:
    """Return the summary's lines: bytes on each link as the emulator counted them."""
    rows: list[list[Cell]] = [["link", "", "up", "packets", "dropped", "lost", "down", "packets", "dropped", "lost"]]
    for entry in content["links"]:
        ways = [entry["up"], entry["down"]]
        figures = [
            text
            for way in ways
            for text in (bytes_text(way["bytes"]), f"{way['packets']:,}", f"{way['dropped']:,}", f"{way['lost']:,}")
        ]
        rows.append([plain(entry["name"], LONGEST_NAME), (plain(entry["link"], LONGEST_NAME), "dim"), *figures])
    return columns(rows, "<<" + ">" * 8)
