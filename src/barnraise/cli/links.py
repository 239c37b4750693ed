"""What a lab's links carry: in the last seconds for the live view, in the whole run for summary and `links.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from barnraise.cli.columns import Cell, columns
from barnraise.core.units import bytes_text
from barnraise.ledger import RunDirectory
from barnraise.transport.presets import MBIT

FILE = "links.json"
MOST_SHOWN = 8
"""Links that the live view shows."""

FULL = 0.9
"""Share of its rate from which on a link counts as full."""


@dataclass(frozen=True)
class LinkUse:
    """Bytes a second that a worker's link carried up and down, and its rates (None: no limit)."""

    name: str
    up: float
    down: float
    up_rate: float | None
    down_rate: float | None


def use_table(uses: Sequence[LinkUse]) -> list[Text]:
    """The live view's lines, the busiest links first."""
    shown = sorted(uses, key=lambda use: -(use.up + use.down))[:MOST_SHOWN]
    rows: list[list[Cell]] = [["link", "Mbit/s up", "of", "", "down", "of", ""]]
    for use in shown:
        rows.append([use.name, *_way(use.up, use.up_rate), *_way(use.down, use.down_rate)])
    return columns(rows, "<>>>>>>")


def use_line(uses: Sequence[LinkUse]) -> str:
    """The same for a log, on one line; empty without links."""
    parts = [f"{use.name} {use.up / MBIT:.1f}/{use.down / MBIT:.1f}" for use in uses[:MOST_SHOWN]]
    return f"        links, Mbit/s up/down: {'  '.join(parts)}" if parts else ""


def _way(used: float, rate: float | None) -> list[Cell]:
    share = used / rate if rate else 0.0
    return [
        f"{used / MBIT:.2f}",
        f"{rate / MBIT:g}" if rate else "any",
        (f"{min(share, 9.99):.0%}" if rate else "", "yellow" if share >= FULL else ""),
    ]


def recorded(run: RunDirectory) -> dict[str, Any] | None:
    """The run's links.json; None when it did not run in a lab."""
    path = run.path / FILE
    return json.loads(path.read_text("utf-8")) if path.exists() else None


def total_table(content: Mapping[str, Any]) -> list[Text]:
    """The summary's lines: bytes on each link as the emulator counted them."""
    rows: list[list[Cell]] = [["link", "", "up", "packets", "dropped", "lost", "down", "packets", "dropped", "lost"]]
    for entry in content["links"]:
        ways = [entry["up"], entry["down"]]
        figures = [
            text
            for way in ways
            for text in (bytes_text(way["bytes"]), f"{way['packets']:,}", f"{way['dropped']:,}", f"{way['lost']:,}")
        ]
        rows.append([entry["name"], (entry["link"], "dim"), *figures])
    return columns(rows, "<<" + ">" * 8)
