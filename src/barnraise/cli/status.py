"""`barnraise status RUN_DIR`: how a run stands, while it works or after it ended or crashed. Reads, never writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnraise.cli import console

if TYPE_CHECKING:
    from barnraise.account.account import Account
    from barnraise.account.standing import Marks


def status(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The run's folder.", show_default=False)],
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """Show how a run stands: whether it works, how far it is, its workers, what happened last, how to go on."""
    from barnraise.account.account import read
    from barnraise.account.standing import as_json, marks_of
    from barnraise.config.load import load
    from barnraise.ledger import RunDirectory

    run = RunDirectory.open(run_dir)
    budget = load(run.run_file).training.tokens
    account, pid = read(run), run.holder()
    marks = marks_of(run)
    if json:
        console.emit_json(as_json(account, budget, pid, marks))
    else:
        _show(account, budget, pid, marks, run_dir)


def _show(account: Account, budget: int, pid: int | None, marks: Marks, given: Path) -> None:
    from rich.text import Text

    from barnraise.account import nodes
    from barnraise.account.facts import facts
    from barnraise.account.standing import MOST_EVENTS, state
    from barnraise.cli.panel import sparkline, told
    from barnraise.cli.tables import node_table
    from barnraise.core.text import printable

    screen, standing = console.console(), state(account, pid)
    style = {"running": "green", "interrupted": "yellow"}.get(standing, "")
    detail = {"running": f" (process {pid})", "finished": f": {printable(account.finished)}"}.get(standing, "")
    screen.print(Text.assemble((account.run.path.name, "bold"), "  ", (standing, style), detail))
    console.say()
    share = min(1.0, account.totals.tokens / budget)
    lines = [("progress", f"{share:.1%} of {budget:,} tokens"), *facts(account)]
    lines.append(("ledger", f"{marks.head.rows:,} rows; the chain over them ends in {marks.head.digest}"))
    if marks.seal:
        lines.append(("seal", marks.seal))
    for label, text in lines:
        curve = f"  {sparkline([point.loss for point in account.losses])}" if label == "loss" else ""
        screen.print(Text.assemble((f"  {label:<9}", "dim"), text, (curve, "cyan")))
    if account.nodes:
        console.say()
        running, finished = pid is not None, bool(account.finished)
        held = account.dispatch.held
        for line in node_table(nodes.recorded(account.nodes, running=running, finished=finished, held=held)):
            screen.print(Text("  ").append_text(line))
    if account.happenings:
        console.say()
        for line in told(account.happenings[-MOST_EVENTS:]):
            screen.print(Text("  ").append_text(line))
    console.say()
    if standing == "interrupted":
        console.say(f"  train on: barnraise resume {given}")
        console.say(f"  end it with what it has: barnraise finish {given}")
    elif standing == "running":
        console.say(f"  interrupt it: Ctrl-C in its terminal, or kill -INT {pid}; it can go on then")
        console.say(f"  end it early, with a usable model: barnraise finish {given}")
    else:
        console.say(f"  model {account.run.model}, report {account.run.report}")
