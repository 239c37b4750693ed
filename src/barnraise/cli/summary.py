"""How a run ends: the model exported, the report written, and what came of it in figures, from the ledger alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnraise.account import nodes
from barnraise.account import scores as sat
from barnraise.account.account import Account, read
from barnraise.account.facts import facts
from barnraise.account.links import recorded
from barnraise.assembly import solving
from barnraise.cli import console
from barnraise.cli.tables import node_table, total_table
from barnraise.core.text import printable
from barnraise.ledger import RunDirectory
from barnraise.plan.resolve import Plan

if TYPE_CHECKING:
    from barnraise.data.sat_evaluation import SatScores


def summarise(run: RunDirectory, plan: Plan, *, json: bool) -> None:
    """Export the model, measure what it solves, write the report, and print the summary or one line of JSON."""
    from barnraise.account.report import write_report
    from barnraise.cli.export import export_model

    export_model(run)
    scores = None
    if plan.run_file.data.kind == "sat":
        console.note("letting the model solve held-out formulas")
        scores = solving.solve_held_out(run)
    account = read(run)
    write_report(account, scores)
    tell(account, scores, json=json)


def tell(account: Account, scores: SatScores | None, *, json: bool) -> None:
    """Print the summary, or one line of JSON."""
    if json:
        links = recorded(account.run)
        extra = ({"links": links} if links else {}) | ({"sat": sat.as_json(scores)} if scores else {})
        console.emit_json(account.as_json() | extra)
    else:
        show(account, scores)


def show(account: Account, scores: SatScores | None) -> None:
    """Print the summary for people."""
    from rich.text import Text

    screen = console.console()
    console.say()
    screen.print(Text.assemble((account.run.path.name, "bold"), f": {printable(account.finished) or 'not finished'}"))
    console.say()
    for label, text in facts(account):
        screen.print(Text.assemble((f"  {label:<9}", "dim"), text))
    console.say()
    for line in node_table(nodes.recorded(account.nodes, running=False, finished=bool(account.finished))):
        screen.print(Text("  ").append_text(line))
    console.say()
    if links := recorded(account.run):
        for line in total_table(links):
            screen.print(Text("  ").append_text(line))
        console.say()
    if scores is not None:
        for text in sat.lines(scores):
            console.say(f"  {text}".rstrip())
        console.say()
    for label, place in (("model", account.run.model), ("report", account.run.report), ("ledger", account.run.ledger)):
        screen.print(Text.assemble((f"  {label:<9}", "dim"), str(place)))
