"""`barnraise top [DIR]`: the runs in a folder, for hosts that have many.

Reads, never writes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnraise.cli import console

if TYPE_CHECKING:
    from rich.text import Text

    from barnraise.account.run_list import RunRow

INTERVAL = 2.0
"""Seconds between two pictures."""

STYLES = {"running": "green", "paused": "yellow", "interrupted": "yellow", "unreadable": "red"}


def top(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="The folder that holds the runs.")] = Path("runs"),
    once: Annotated[bool, typer.Option("--once", help="Show them once; so it is without a terminal.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each run, once.")] = False,
) -> None:
    """Show the runs in a folder, those that work first: state, progress, loss, workers, and what happened last.

    Redraws every two seconds until you press Ctrl-C. A run that cannot be read is shown with the reason.
    """
    from barnraise.account.run_list import RunList

    with RunList(folder) as runs:
        rows = runs.read()
        if json:
            for row in rows:
                console.emit_json(row._asdict())
        elif once or not sys.stdout.isatty():
            console.show(_lines(rows))
        else:
            from rich.console import Group
            from rich.live import Live

            from barnraise.cli.screen import Screen

            with Live(console=Screen(), auto_refresh=False) as live:
                while True:
                    live.update(Group(*_lines(rows, live.console.height)), refresh=True)
                    time.sleep(INTERVAL)
                    rows = runs.read()


def _lines(rows: Sequence[RunRow], height: int = 1_000_000) -> list[Text]:
    from rich.text import Text

    from barnraise.account.chronicle import plain
    from barnraise.cli.columns import Cell, columns
    from barnraise.core.text import printable
    from barnraise.core.units import duration_text, loss_text

    shown = rows[: max(1, height - 3)]
    header = ["run", "state", "done", "loss", "tokens/s", "workers", "version", "refused", "for", "last"]
    cells: list[Sequence[Cell]] = [header]
    for row in shown:
        known = row.state != "unreadable"
        figures = [
            f"{row.progress:.1%}", "-" if row.loss is None else loss_text(row.loss),
            f"{row.tokens_per_second:,.0f}", f"{row.present} of {row.workers}", f"{row.version:,}", f"{row.refused:,}",
            duration_text(row.seconds),
        ]  # fmt: skip
        name: Cell = plain(row.name, 40)
        state: Cell = (row.state, STYLES.get(row.state, "dim"))
        cells.append([name, state, *(figures if known else ["-"] * len(figures)), printable(row.news)])
    lines = columns(cells, "<<" + ">" * 7 + "<")
    if len(shown) < len(rows):
        lines.append(Text(f"and {len(rows) - len(shown):,} more", "dim"))
    return lines
