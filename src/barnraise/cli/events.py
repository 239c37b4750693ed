"""`barnraise events RUN_DIR`: the events of a run by kind, node and time, and further ones as they come.

Reads, never writes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnraise.cli import console
from barnraise.core.program import program

if TYPE_CHECKING:
    from barnraise.account.events import Event
    from barnraise.ledger import LedgerView, RunDirectory

LAST = 100
"""Events that are shown where neither a number nor a time is asked for."""

INTERVAL = 0.5
"""Seconds between two looks at the ledger."""


def events(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The run's folder.", show_default=False)],
    kind: Annotated[
        str,
        typer.Option(
            metavar="KINDS",
            help="Kinds of events, with commas: refused,left; all for every row. What is no routine unless given.",
            show_default=False,
        ),
    ] = "",
    node: Annotated[str, typer.Option(help="Only events of this node.", show_default=False)] = "",
    since: Annotated[
        str,
        typer.Option(metavar="TIME", help="Only the last 90min, 36h or 2d of the run's clock.", show_default=False),
    ] = "",
    last: Annotated[
        int | None,
        typer.Option(
            help=f"Number of newest events; 0 for all. {LAST} unless --since is given.", min=0, show_default=False
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for further events until the run is over.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="A line of JSON for each event, with its ledger row.")] = False,
) -> None:
    """List the events of a run: nodes that joined or left, refusals, verdicts, faults, recoveries, advice.

    Works while the run does, and after it ended or crashed. `--kind all` lists every row of the ledger; an unknown kind
    is answered with all names.
    """
    from barnraise.account.events import EventFeed, kinds_of
    from barnraise.core.units import seconds_of
    from barnraise.ledger import LedgerView, RunDirectory

    kinds, recent = kinds_of(kind), seconds_of(since, "--since") if since else None
    run = RunDirectory.open(run_dir)
    most = last if last is not None else 0 if since else LAST
    with LedgerView(run.ledger) as view:
        _require_node(view, run, node)
        feed = EventFeed(view, kinds, node=node, since=_now(run, view) - recent if recent else 0.0)
        found = list(feed.new())
        for event in found[-most:]:
            _show(event, json)
        if most and len(found) > most and not json:
            console.note(f"{len(found) - most:,} earlier events are left out: --last 0 shows all")
        if not found and not follow:
            console.note("the ledger has no such events")
        if follow:
            _follow(run, view, feed.new, json)


def _now(run: RunDirectory, view: LedgerView) -> float:
    """Return the time of the run's clock; of a run that does not work, of its last row."""
    return view.end + (run.unchanged_for() if run.holder() is not None and run.simulation is None else 0.0)


def _require_node(view: LedgerView, run: RunDirectory, node: str) -> None:
    from barnraise.core.errors import UnknownNameError

    if node and node not in (names := view.names()):
        raise UnknownNameError(f"node of {run.path.name}", node, names[:20])


def _follow(run: RunDirectory, view: LedgerView, new: Callable[[], Iterable[Event]], json: bool) -> None:
    """Show further events until the run is over; say when it waits for a controller."""
    from barnraise.ledger import notes

    waits = False
    while True:
        working = run.holder() is not None
        for event in new():
            _show(event, json)
        if not working and (view.newest(notes.Finished) is not None or run.simulation is not None):
            return
        if not working and not waits:
            console.note(f"no controller works on this run: waiting for `{program()} resume {run.path}`")
        waits = not working
        time.sleep(INTERVAL)


def _show(event: Event, json: bool) -> None:
    if json:
        from barnraise.ledger.rows import flat

        told = event._asdict() | {"sort": type(event.decision).__name__, "decision": flat(event.decision)}
        console.emit_json(told)
    else:
        console.say(f"{event.time:10.1f} s  {event.kind:<12}  {event.text}")
