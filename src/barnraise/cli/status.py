"""`barnraise status RUN_DIR|INVITE`: the status of a run, while it works or after it ended or crashed.

Reads, never writes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnraise.cli import console
from barnraise.core.program import program

if TYPE_CHECKING:
    from barnraise.account.run_status import RunStatus
    from barnraise.ledger import RunDirectory


def status(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN_DIR|INVITE",
            help="The run's folder; elsewhere an observer's invite: the line, @FILE, or - for standard input.",
            show_default=False,
        ),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
    home: Annotated[Path | None, typer.Option(help="Where an observer's key is kept.", show_default=False)] = None,
) -> None:
    """Show how a run stands: whether it works, how far it is, its workers, what happened last, how to resume it.

    With an invite for an observer (`barnraise invite RUN_DIR --role observer`) the same is shown, but for paths and
    processes of the host.
    """
    if run == "-" or run.startswith(("@", "barnraise://")):
        import asyncio

        from barnraise.assembly.observing import look
        from barnraise.cli.invites import given

        shown = asyncio.run(look(given(run), home))
        console.emit_json(shown.told) if json else _show(shown, f": {shown.finished}" if shown.finished else "")
        return
    from barnraise.account.account import read
    from barnraise.account.run_status import marks_of, status_of
    from barnraise.config.load import load
    from barnraise.ledger import RunDirectory

    folder = RunDirectory.open(Path(run))
    pid = folder.holder()
    shown = status_of(read(folder), load(folder.run_file).training.tokens, pid, marks_of(folder))
    if json:
        console.emit_json(shown.told)
        return
    from barnraise.core.text import printable

    detail = {"running": f" (process {pid})", "finished": f": {printable(shown.finished)}"}
    _show(shown, detail.get(shown.state, ""))
    _advise(shown.state, folder, pid, run)


def _show(shown: RunStatus, detail: str) -> None:
    from rich.text import Text

    from barnraise.cli.panel import sparkline, told
    from barnraise.cli.tables import node_table

    screen = console.console()
    style = {"running": "green", "interrupted": "yellow"}.get(shown.state, "")
    screen.print(Text.assemble((shown.run, "bold"), "  ", (shown.state, style), detail))
    console.say()
    for label, text in [("progress", f"{shown.progress:.1%} of {shown.budget:,} tokens"), *shown.facts]:
        curve = f"  {sparkline(shown.losses)}" if label == "loss" else ""
        screen.print(Text.assemble((f"  {label:<9}", "dim"), text, (curve, "cyan")))
    if shown.nodes:
        console.say()
        for line in node_table(shown.nodes):
            screen.print(Text("  ").append_text(line))
    if shown.events:
        console.say()
        for line in told(shown.events):
            screen.print(Text("  ").append_text(line))


def _advise(state: str, run: RunDirectory, pid: int | None, given: str) -> None:
    console.say()
    if state == "interrupted":
        console.say(f"  train on: {program()} resume {given}")
        console.say(f"  end it with what it has: {program()} finish {given}")
    elif state == "running":
        console.say(f"  interrupt it: Ctrl-C in its terminal, or kill -INT {pid}; it can continue later")
        console.say(f"  end it early, with a usable model: {program()} finish {given}")
    else:
        console.say(f"  model {run.model}, report {run.report}")
