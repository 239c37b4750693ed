"""`barnraise status RUN_DIR|INVITE`: the status of a run, while it works or after it ended or crashed.

Reads, never writes.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnraise.cli import console
from barnraise.core.errors import BarnraiseError
from barnraise.core.program import program

if TYPE_CHECKING:
    from rich.text import Text

    from barnraise.account.run_status import RunStatus
    from barnraise.assembly.forecasting import Forecast
    from barnraise.ledger import RunDirectory

NEAR, FAR = 2.0, 10.0
"""Seconds between two looks at a run of this machine, and at one elsewhere."""

WORKING = ("running", "paused")
"""The states in which a run has a controller, as in `account.run_status`, which is imported late."""

FEW_ROWS, FEW_DRAWS = 20_000, 50
"""Rows of a ledger up to which the status has a forecast, and its draws."""


def status(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN_DIR|INVITE",
            help="The run's folder; elsewhere an observer's invite: the line, @FILE, or - for standard input.",
            show_default=False,
        ),
    ],
    watch: Annotated[
        bool,
        typer.Option("--watch", "-w", help="Show it again and again while the run works; without a terminal in lines."),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON; with --watch one whenever the run has changed.")
    ] = False,
    home: Annotated[Path | None, typer.Option(help="Where an observer's key is kept.", show_default=False)] = None,
) -> None:
    """Show how a run stands: whether it works, how far it is, its workers, what happened last, how to resume it.

    With an invite for an observer (`barnraise invite RUN_DIR --role observer`) the same is shown, but for paths and
    processes of the host.
    """
    with ExitStack() as stack:
        if run == "-" or run.startswith(("@", "barnraise://")):
            folder, read, interval = None, _afar(run, home), FAR
        else:
            from barnraise.ledger import RunDirectory

            folder, interval = RunDirectory.open(Path(run)), NEAR
            read = _near(folder, stack)
        shown = read()
        if watch and shown.state in WORKING:
            shown = _watched(shown, read, interval, json)
        forecast = _forecast(shown, folder) if folder is not None else None
        if json:
            console.emit_json(shown.told if forecast is None else shown.told | {"forecast": forecast.as_json()})
            return
        console.show(_lines(shown, () if forecast is None else [("ends", ends_text(forecast))]))
        if folder is not None:
            _advise(shown, folder, run)


def _afar(given: str, home: Path | None) -> Callable[[], RunStatus]:
    """Return a function that asks a run elsewhere for its status, with an observer's invite."""
    import asyncio

    from barnraise.assembly.observing import look
    from barnraise.cli import invites

    invite = invites.given(given)
    return lambda: asyncio.run(look(invite, home))


def _near(folder: RunDirectory, stack: ExitStack) -> Callable[[], RunStatus]:
    """Return a function that reads the status of a run of this machine, each time what is new."""
    from barnraise.account.account import AccountReader
    from barnraise.account.run_status import marks_of, status_of
    from barnraise.config.load import load

    budget = load(folder.run_file).training.tokens
    reader = stack.enter_context(AccountReader(folder))

    def read() -> RunStatus:
        pid = folder.holder()  # before the ledger: a run that ends in between is shown as running, and not cut short
        return status_of(reader.read(), budget, pid, marks_of(folder))

    return read


def _forecast(shown: RunStatus, folder: RunDirectory) -> Forecast | None:
    """Return the forecast of a run that works and whose ledger is read quickly, if there is one."""
    if shown.state != "running" or shown.told.get("simulated") or shown.told["rows"] > FEW_ROWS:
        return None
    from barnraise.assembly.forecasting import brief

    try:
        return brief(folder, FEW_DRAWS)
    except BarnraiseError:
        return None  # it has just begun, or is over


def ends_text(found: Forecast) -> str:
    """Return in how many seconds a run ends, and the interval."""
    from barnraise.core.units import duration_text

    left, low, high = (max(0.0, at - found.now) for at in (found.at, found.low, found.high))
    if left == math.inf:
        return "never with the nodes that there are"
    latest = duration_text(high) if high < math.inf else "never"
    return f"in {duration_text(left)} (80%: {duration_text(low)} to {latest})"


def _watched(shown: RunStatus, read: Callable[[], RunStatus], interval: float, json: bool) -> RunStatus:
    """Show the status as it changes, while the run works; return the last one, which is not shown."""
    if not json and sys.stdout.isatty():
        from rich.console import Group
        from rich.live import Live

        from barnraise.cli.screen import Screen

        with Live(console=Screen(), auto_refresh=False, transient=True, vertical_overflow="visible") as live:
            while shown.state in WORKING:
                live.update(Group(*_lines(shown)), refresh=True)
                time.sleep(interval)
                shown = read()
        return shown
    told = None
    while shown.state in WORKING:
        mark = shown.told.get("rows"), shown.told.get("head")
        if mark != told:
            console.emit_json(shown.told) if json else console.say(_line(shown))
        told = mark
        time.sleep(interval)
        shown = read()
    return shown


def _state(shown: RunStatus) -> str:
    return f"simulated, {shown.state}" if shown.told.get("simulated") else shown.state


def _line(shown: RunStatus) -> str:
    """Return the status on one line."""
    from barnraise.account.nodes import PRESENT
    from barnraise.core.text import printable
    from barnraise.core.units import count_text, loss_text

    present = sum(row.state in PRESENT for row in shown.nodes)
    told = [_state(shown), f"{shown.progress:6.1%}", f"loss {loss_text(shown.losses[-1]) if shown.losses else '-'}"]
    told.append(f"version {printable(str(shown.told.get('versions', '-')), 12)}")
    told.append(count_text(present, "worker"))
    last = printable(shown.events[-1].text) if shown.events else ""
    return "  ".join([printable(shown.run), *told, last]).rstrip()


def _lines(shown: RunStatus, further: Iterable[tuple[str, str]] = ()) -> list[Text]:
    from rich.text import Text

    from barnraise.cli.panel import sparkline, told
    from barnraise.cli.tables import node_table
    from barnraise.core.text import printable

    style = {"running": "green", "paused": "yellow", "interrupted": "yellow"}.get(shown.state, "")
    pid = shown.told.get("pid")
    detail = f" (process {pid})" if pid else f": {printable(shown.finished)}" if shown.finished else ""
    lines = [Text.assemble((printable(shown.run), "bold"), "  ", (_state(shown), style), detail), Text()]
    hours = shown.told.get("virtual_hours")
    whole = f"{hours:,g} virtual hours" if hours else f"{shown.budget:,} tokens"
    for label, text in [("progress", f"{shown.progress:.1%} of {whole}"), *further, *shown.facts]:
        curve = f"  {sparkline(shown.losses)}" if label == "loss" else ""
        lines.append(Text.assemble((f"  {label:<9}", "dim"), text, (curve, "cyan")))
    if shown.nodes:
        lines += [Text(), *(Text("  ").append_text(line) for line in node_table(shown.nodes))]
    if shown.events:
        lines += [Text(), *(Text("  ").append_text(line) for line in told(shown.events))]
    return lines


def _advise(shown: RunStatus, run: RunDirectory, given: str) -> None:
    console.say()
    if run.simulation is not None:
        console.say("  it is a simulation's: there is nothing to resume, and no model")
        console.say(f"  report with pictures: {program()} report {given}")
    elif shown.state == "interrupted":
        console.say(f"  train on: {program()} resume {given}")
        console.say(f"  end it with what it has: {program()} finish {given}")
    elif shown.state in WORKING:
        if shown.told.get("paused_by_host"):
            console.say(f"  continue it: {program()} continue {given}")
        stop = f", or kill -INT {pid}" if (pid := run.holder()) else ""
        console.say(f"  interrupt it: Ctrl-C in its terminal{stop}; it can continue later")
        console.say(f"  end it early, with a usable model: {program()} finish {given}")
    else:
        model = run.model if run.model.exists() else f"not written: {program()} export {given}"
        console.say(f"  model {model}, report {run.report}")
