"""`barnraise story RUN_DIR WHAT`: the ledger's rows of an assignment or a node, in order.

Reads, never writes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from barnraise.cli import console
from barnraise.core.errors import InputError
from barnraise.core.text import LONGEST_NAME, printable

MOST_NAMED = 20


def story(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The run's folder.", show_default=False)],
    what: Annotated[
        str, typer.Argument(metavar="NUMBER|NODE", help="An assignment's number, or a node's name.", show_default=False)
    ],
    last: Annotated[int, typer.Option(help="Number of newest lines of a node; 0 for all.", min=0)] = 100,
    json: Annotated[bool, typer.Option("--json", help="A line of JSON for each decision.")] = False,
) -> None:
    """Tell the story of an assignment, or what a node did and what happened to it, from the ledger alone.

    Works while the run does, and after it ended or crashed.
    """
    from barnraise.account import story as told
    from barnraise.ledger import LedgerView, RunDirectory
    from barnraise.ledger.rows import flat

    run = RunDirectory.open(run_dir)
    with LedgerView(run.ledger) as view:
        named = view.names()
        if what in named:
            lines = told.of_node(view, what, last)
        elif what.isdecimal() and len(what) <= 18:
            lines = told.of_assignment(view, int(what))
        else:
            lines = []
    if not lines:
        shown = ", ".join(printable(name, LONGEST_NAME) for name in named[:MOST_NAMED])
        nodes = f"its nodes are {shown}" if named else "it has no nodes yet"
        raise InputError(f"{run.path} has neither an assignment nor a node '{printable(what)}'; {nodes}")
    for line in lines:
        if json:
            sort = type(line.decision).__name__
            decision = flat(line.decision)
            console.emit_json({"time": line.time, "text": line.text, "sort": sort, "decision": decision})
        else:
            console.say(f"{line.time:10.1f} s  {line.text}")
