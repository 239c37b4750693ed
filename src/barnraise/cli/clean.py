"""`barnraise clean`: lists the folders that runs and joins left on this machine, and removes named ones."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barnraise.cli import console
from barnraise.core.errors import InputError

if TYPE_CHECKING:
    from barnraise.assembly.cleaning import Remains


def clean(
    folders: Annotated[
        list[Path] | None, typer.Argument(metavar="[RUN_DIR]...", help="Runs to remove.", show_default=False)
    ] = None,
    joined: Annotated[
        bool, typer.Option("--joined", help="Remove what `barnraise join` has kept: keys and fetched data.")
    ] = False,
    older: Annotated[
        str,
        typer.Option(metavar="TIME", help="With --joined: only data that was not used for this long, as 36h or 7d."),
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before removing.")] = False,
    runs: Annotated[Path, typer.Option(help="The folder whose runs are listed.")] = Path("runs"),
    home: Annotated[
        Path | None, typer.Option(help="Where `barnraise join` keeps its data.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one line of JSON.")] = False,
) -> None:
    """List what runs and joins left on this machine; remove the runs that are named, or what joins left.

    Nothing that a process works in is removed. A run that is removed is gone: export its model first. A machine whose
    keys are removed joins as a new node, which takes one use of an invite.
    """
    from barnraise.assembly import cleaning
    from barnraise.assembly.joining import default_home
    from barnraise.core.units import seconds_of

    least = seconds_of(older, "--older") if older else 0.0
    kept = [found for found in cleaning.joined_in(home or default_home()) if found.age >= least]
    if folders or joined:
        chosen = [*map(cleaning.run_at, folders or []), *(found for found in kept if joined)]
    else:
        chosen = []
    if not chosen:
        _list([*cleaning.runs_in(runs), *kept], json)
        return
    removable = [found for found in chosen if found.state != cleaning.WORKS]
    for found in chosen:
        if found not in removable:
            console.warn(f"{found.path} is in use and is kept")
    if removable and not yes:
        _ask(removable)
    for found in removable:
        cleaning.remove(found)
        console.note(f"removed {found.path}")
    if json:
        console.emit_json({"removed": [str(found.path) for found in removable]})


def _list(remains: list[Remains], json: bool) -> None:
    from rich.text import Text

    from barnraise.cli.columns import columns
    from barnraise.core.program import program
    from barnraise.core.units import bytes_text, duration_text

    if json:
        told = [
            {"path": str(r.path), "kind": r.kind, "state": r.state, "bytes": r.num_bytes, "age_seconds": r.age}
            for r in remains
        ]
        console.emit_json({"found": told})
        return
    if not remains:
        console.say("nothing is left here")
        return
    rows = [("what", "state", "size", "last written", "where")]
    rows += [(r.kind, r.state, bytes_text(r.num_bytes), f"{duration_text(r.age)} ago", str(r.path)) for r in remains]
    screen = console.console()
    for line in columns(rows, "<<>><"):
        screen.print(Text("").append_text(line))
    total = bytes_text(sum(r.num_bytes for r in remains))
    console.say(f"{total} in all. Remove a run: {program()} clean RUN_DIR; what joins left: {program()} clean --joined")


def _ask(remains: list[Remains]) -> None:
    """Have the user confirm; InputError without a terminal."""
    for found in remains:
        console.note(f"{found.kind} {found.path} ({found.state})")
    if not sys.stdin.isatty():
        raise InputError("removing needs a confirmation: run it on a terminal, or with --yes")
    typer.confirm(
        f"Remove {'this' if len(remains) == 1 else f'these {len(remains)}'} permanently?", abort=True, err=True
    )
