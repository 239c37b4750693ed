"""`barnraise invite RUN_DIR`: another invite to a run, whether its controller runs now or not."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from barnraise.cli import console


def invite(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The run's folder.", show_default=False)],
    uses: Annotated[int, typer.Option(help="How many machines it lets in.", min=1)] = 1,
    hours: Annotated[float, typer.Option(help="How long it is good for.", min=0.01)] = 24.0,
    host: Annotated[str, typer.Option(help="The address workers shall dial instead of the one listened on.")] = "",
) -> None:
    """Make another invite to a run. A controller that runs now accepts it at once."""
    from barnraise.core.errors import RunDirectoryError
    from barnraise.ledger import RunDirectory
    from barnraise.transport import Keys

    run = RunDirectory.open(run_dir)
    from barnraise.cli.addresses import recorded_uri
    from barnraise.cli.invites import new_invite

    uri = recorded_uri(run)
    if not uri:
        raise RunDirectoryError(f"{run.path} has never listened: start it with `barnraise serve RUN.yaml`")
    key = Keys.load(run.keys / "controller.json").public
    console.say(str(new_invite(run, uri, key, uses=uses, hours=hours, host=host)))
