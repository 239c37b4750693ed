"""The end of a command with a controller: the summary, or one line of JSON, and its exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from barnraise.account import nodes
from barnraise.account import scores as sat
from barnraise.account.account import Account, manifest
from barnraise.account.doubts import states
from barnraise.account.facts import facts
from barnraise.account.links import recorded
from barnraise.account.run_status import marks_of
from barnraise.assembly.ending import Summary
from barnraise.cli import console
from barnraise.cli.log_forms import JSON, emit
from barnraise.cli.tables import node_table, score_tables, total_table
from barnraise.core.errors import RunFailedError
from barnraise.core.program import program
from barnraise.core.signals import INTERRUPTED
from barnraise.core.text import printable
from barnraise.models.problems import PROBLEM

if TYPE_CHECKING:
    from barnraise.data.sat.scores import SatScores


def tell(ending: Summary, form: str = "", *, json: bool) -> None:
    """Print the summary of the run, after a log in some `form`; an interrupted one has none.

    Raises Exit, or RunFailedError when something around it broke.
    """
    if ending.interrupted:
        raise typer.Exit(INTERRUPTED)
    if json or form == JSON:
        links, scores = recorded(ending.account.run), ending.scores
        extra = ({"links": links} if links else {}) | ({"sat": sat.as_json(scores)} if scores else {})
        told = ending.account.as_json() | extra | {"seal": marks_of(ending.account.run).seal or None}
        emit("end", told) if form == JSON else console.emit_json(told)
    else:
        show(ending.account, ending.scores)
    if ending.broken:
        raise RunFailedError(ending.broken)


def show(account: Account, scores: SatScores | None) -> None:
    """Print the summary as text."""
    from rich.text import Text

    screen = console.console()
    console.say()
    screen.print(Text.assemble((account.run.path.name, "bold"), f": {printable(account.finished) or 'not finished'}"))
    console.say()
    for label, text in facts(account):
        screen.print(Text.assemble((f"  {label:<9}", "dim"), text))
    console.say()
    for line in node_table(
        nodes.recorded(
            account.nodes, running=False, finished=bool(account.finished), doubts=states(account.dispatch.doubts)
        )
    ):
        screen.print(Text("  ").append_text(line))
    console.say()
    if links := recorded(account.run):
        for line in total_table(links):
            screen.print(Text("  ").append_text(line))
        console.say()
    if scores is not None:
        for text in sat.lines(scores):
            console.say(f"  {text}")
        for found in score_tables(scores):
            console.say()
            for line in found:
                screen.print(Text("  ").append_text(line))
        console.say()
        for text in sat.example_lines(scores):
            console.say(f"  {text}")
        console.say()
    places = account.run.model, account.run.report, account.run.report_page, account.run.ledger
    for label, place in zip(("model", "report", "page", "ledger"), places, strict=True):
        if place.exists():  # the model of an encrypted run is written by a member with the key
            screen.print(Text.assemble((f"  {label:<9}", "dim"), str(place)))
    if mark := marks_of(account.run).seal:
        screen.print(Text.assemble(("  seal     ", "dim"), mark))
    if PROBLEM not in manifest(account.run).model and account.run.model.exists():
        screen.print(Text.assemble(("  try it   ", "dim"), f"{program()} try {account.run.path}"))
