"""`barnraise keys`: makes the key of a run whose updates are encrypted, and shows a key's name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from barnraise.cli import console

keys = typer.Typer(
    help="Make and show the key of a run whose updates are encrypted.", add_completion=False, no_args_is_help=True
)

File = Annotated[Path, typer.Argument(metavar="FILE", help="The key file.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print one line of JSON.")]


@keys.command()
def make(
    file: File,
    name: Annotated[str, typer.Option(help="The key's name; that of the file by default.", show_default=False)] = "",
    json: Json = False,
) -> None:
    """Make a new secret key for the workers of a run.

    FILE is readable by you alone, and an existing one is not replaced. Give it to the other members by a way that the
    host does not see, for instance scp; the run file, and so the host, gets its name and id alone. Without the file
    the model cannot be read. Needs the extra `privacy`.
    """
    from barnraise.privacy.encryption import keys as files

    made = files.make(files.checked_name(name or file.stem))
    files.save(made, file)
    _tell(made.name, json=json)


@keys.command()
def show(file: File, json: Json = False) -> None:
    """Check a key file, and show the name and id of its key."""
    from barnraise.privacy.encryption import keys as files

    _tell(files.load(file).name, json=json)


def _tell(name: str, *, json: bool) -> None:
    if json:
        console.emit_json({"key": name})
        return
    console.say(f"key {name}; in the run file:")
    console.say(f"privacy:\n  homomorphic_encryption:\n    key: {name}")
